"""A simulated cluster for whole rollouts: every write is checked against what must hold between any two of them."""

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from learnloop_api import names
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.wire.routing import Arm, Override
from learnloop_operator.core.plan import Notice, Plan
from learnloop_operator.rollout.children.routing import read, read_route
from learnloop_operator.rollout.children.serving_arms import arms
from learnloop_operator.rollout.decide_deployment import current, decide
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence, Openings
from learnloop_operator.rollout.judging.watched_arms import windows
from learnloop_operator.rollout.state.snapshot import Defaults, LiveRouting, Snapshot, resolve
from testing.simulation.ended_episodes import Episodes
from testing.simulation.opened_episodes import Opened
from testing.simulation.routed_users import Users, shares

GOOD, BETTER, BAD = 300.0, 480.0, 9.0
RANGE = {"lowest": 0.0, "highest": 500.0}
ERRORS = {"name": "errors", "type": "errors", "max": 0.05}
CHECKS = [{"name": "return", "type": "return", "minRatio": 0.8, "returnRange": RANGE}, ERRORS]
LEAST = [
    {"name": "return", "type": "return", "minRatio": 0.8, "min": 290.0, "returnRange": RANGE},
    ERRORS,
]
"""Checks that speak in the guard too, where no ratio does."""
STEPS = [{"weight": weight, "minEpisodes": 6} for weight in (10, 25, 50, 100)]
DEADLINE = timedelta(seconds=60)
MODES = ("service", "gateway")
TWICE_EVERY = 4
GATEWAY = {"mode": "gateway", "gateway": {"name": "edge"}}


def uri(number: int) -> str:
    return f"https://models.example/{number}.onnx"


def digest(number: int) -> str:
    """Of the model's file: every model has its own."""
    return f"{number:064x}"


class Cluster:
    """The API server, the kubelets, the agents and Prometheus, as far as a rollout can see them."""

    def __init__(self, steps: list[dict[str, Any]] | None = None, keep: int = 30) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.spec: dict[str, Any] = {
            "model": {"uri": uri(0), "sha256": digest(0)},
            "rollout": {"steps": steps or STEPS, "keepForSeconds": keep, "progressDeadlineSeconds": 60},
            "analysis": {"intervalSeconds": 2, "metrics": CHECKS},
        }
        self.annotations: dict[str, str] = {}
        self.status: dict[str, Any] = {}
        self.config_map: dict[str, Any] | None = None
        self.route: dict[str, Any] | None = None
        self.users = Users()
        self.deployments: dict[str, dict[str, Any]] = {}
        self.services: set[str] = set()
        self.quality = {uri(0): GOOD}
        self.episodes = Episodes()
        self.opened = Opened()
        self.hangs: dict[str, float] = {}
        """Share of a model's episodes that never end, by its URI."""
        self.lasts = 0
        """Seconds that an episode takes."""
        self.prometheus, self.traffic, self.per_second = True, True, 4
        self.lag = 0
        """Seconds by which Prometheus is behind: everything is scraped that long ago."""
        self.skew = 0
        """Seconds by which Prometheus' clock is ahead of the operator's."""
        self.ahead = 0.0
        """Seconds by which the API server's clock is ahead of the operator's."""
        self.broken: set[str] = set()
        self.events: list[str] = []
        self.noted: tuple[Notice, ...] = ()
        self.promotions: list[str] = []
        self.random = random.Random(7)
        self.passes = 0
        self._read: tuple[Any, Any, LiveRouting] = (None, None, LiveRouting())

    def by(self, mode: str) -> Self:
        """The same with this routing mode."""
        if mode == "gateway":
            self.spec["routing"] = GATEWAY
        return self

    def routing(self) -> LiveRouting:
        """The operator's snapshot of it; once after each write, for writes replace the whole object."""
        table, route, _ = self._read
        if table is not self.config_map or route is not self.route:
            rig = replace(read(self.config_map), route=read_route(self.route, "md"))
            self._read = self.config_map, self.route, rig
        return self._read[2]

    def shares(self) -> dict[str, int]:
        """Percent of new episodes by revision, as users get them."""
        return shares(self.routing(), self.now)

    def snapshot(self) -> Snapshot:
        metadata = {"name": "md", "namespace": "ns", "uid": "u", "generation": 1, "annotations": self.annotations}
        body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "status": self.status}
        spec = ModelDeploymentSpec.model_validate(self.spec)
        bare = Snapshot(
            now=self.now,
            ahead=timedelta(seconds=self.ahead),
            object=body,
            spec=spec,
            before=ModelDeploymentStatus.model_validate(self.status),
            desired=resolve(spec, None),
            arms=arms(self.deployments.values(), []),
            routing=self.routing(),
            defaults=Defaults("image", "http://data"),
        )
        wanted = {window.revision: window.seconds for window in windows(bare, current(bare))}
        if not wanted:
            return bare
        if not self.prometheus:
            return Snapshot(**{**fields(bare), "evidence": Evidence(unavailable="Prometheus does not answer")})
        scraped_arms = {revision: self.scraped(revision, seconds) for revision, seconds in wanted.items()}
        clock = self.now + timedelta(seconds=self.skew)
        return Snapshot(**{**fields(bare), "evidence": Evidence(scraped_arms, clock=clock)})

    def scraped(self, revision: str, seconds: float) -> ArmEvidence:
        since, scrape = self.now - timedelta(seconds=seconds), self.now - timedelta(seconds=self.lag)
        returns = self.episodes.returns(revision, since, scrape)
        mean = sum(returns) / len(returns) if returns else None
        lately = len(self.episodes.returns(revision, scrape - DEADLINE, scrape))
        shares = 1.0 if returns else None, 0.0 if returns else None
        scraped = scrape + timedelta(seconds=self.skew)
        openings = self.openings(revision, since, scrape)
        details: dict[str, Any] = {"scraped_at": scraped, "lately": lately, "openings": openings}
        return ArmEvidence(len(returns), mean, *shares, **details)

    def openings(self, revision: str, since: datetime, scrape: datetime) -> Openings:
        """The outcomes of the arm's opened episodes."""
        deadline = self.spec["analysis"].get("episodeDeadlineSeconds", 600)
        return self.opened.since(revision, since, scrape, deadline)

    def reconcile(self, crash_after: int | None = None) -> Plan:
        """One pass; the operator dies after `crash_after` writes."""
        snapshot = self.snapshot()
        was = repr(snapshot) if self.passes % TWICE_EVERY == 0 else ""
        plan = decide(snapshot)
        self.noted = plan.events
        assert not was or repr(snapshot) == was, "a decision has changed what it looked at"
        self.passes += 1
        if plan.events or plan.delete or self.passes % TWICE_EVERY == 0:
            assert decide(snapshot) == plan, "not deterministic"
        self.check_order(plan)
        writes = [("apply", item) for item in plan.apply] + [("delete", item) for item in plan.delete]
        writes.insert(0 if plan.status_first else len(writes), ("status", plan.status))
        for verb, item in writes[:crash_after]:
            getattr(self, f"_{verb}")(item)
            self.check()
            assert not (wrong := self.users.wronged(self.routing(), self.status, self.now)), wrong
        if crash_after is None or crash_after >= len(writes):
            self.events += [event.reason for event in plan.events]
        return plan

    def check_order(self, plan: Plan) -> None:
        assert plan.apply[0]["kind"] in ("ConfigMap", "HTTPRoute"), "the route comes first"
        live, doomed = self.routing(), {ref.name.removeprefix("md-") for ref in plan.delete}
        listed = {arm.revision: arm for arm in live.table.arms} if live.table else {}
        drawn = set(listed) if live.route is None else set(live.route.weights)
        assert not drawn & doomed, "an arm went while users could still be led to it"
        # gateway mode: an arm that was not rolled back may stand in the table until there is something else to write.
        block = plan.status.get("blockedRevision") or {}
        assert block.get("revision") not in set(listed) & doomed, (
            "an arm went before its servers knew that they serve no more"
        )
        assert all(listed[revision].role != "stable" for revision in set(listed) & doomed)

    def _apply(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        if manifest["kind"] == "ConfigMap":
            old, new = self.routing().table, read(manifest).table
            assert new is not None
            assert old is None or new == old or new.generation > old.generation, "a changed table needs a generation"
            self.config_map = manifest
        elif manifest["kind"] == "HTTPRoute":
            self.route = manifest
        elif manifest["kind"] == "Deployment":
            status = self.deployments.get(name, {}).get("status", {})
            self.deployments[name] = {**manifest, "status": status}
        elif manifest["kind"] == "Service":
            self.services.add(name)

    def _delete(self, ref: Any) -> None:
        if ref.kind == "Deployment":
            self.deployments.pop(ref.name, None)
        elif ref.kind == "HTTPRoute":
            self.route = None

    def _status(self, status: dict[str, Any]) -> None:
        before, after = self.status.get("stable"), status.get("stable")
        if before and after and before["revision"] != after["revision"] and status.get("previous"):
            self.check_promotion(after["revision"])
        assert status["verdict"]
        shadows = any(step.get("shadow") for step in self.spec["rollout"]["steps"])
        assert len(status["conditions"]) == 8 + shadows + ("gates" in self.spec) + ("overrides" in status)
        self.check_step(self.status, status)
        self.check_blocked(self.status, status)
        self.check_guard(self.status, status)
        self.status = status

    def check_step(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """A step is passed on episodes that ended in it, however late Prometheus hears of them. For the first step
        all of the rollout's count: there was no weight before."""
        if before.get("step") is not None and after.get("step") == before["step"] + 1:
            began = datetime.fromisoformat(before["stepStartedAt" if before["step"] else "rolloutStartedAt"])
            arm = before["canary"]["revision"]
            count = sum(1 for at, revision, _ in self.episodes if revision == arm and at > began)
            needed = self.spec["rollout"]["steps"][before["step"]]["minEpisodes"]
            assert abs(self.skew) <= 30, f"step {before['step']} passed with clocks {self.skew} s apart"
            assert count >= needed, f"step {before['step']} passed on {count} of {needed} episodes"

    def check_blocked(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """No artifact that was rolled back begins again, and nothing leaves the list, but by a retry or an undo."""
        was, now = before.get("blockedRevisions", ()), after.get("blockedRevisions", ())
        orders = {(item["verb"], item["value"]) for item in before.get("decisions", ())}
        fresh = {item["verb"] for item in after.get("decisions", ()) if (item["verb"], item["value"]) not in orders}
        if "retry" not in fresh:
            lost = {block["revision"] for block in was} - {block["revision"] for block in now}
            assert not lost or len(was) == len(now) == 32, f"{lost} unblocked without an order"
        canary, hand = after.get("canary"), after.get("standingOrder") or {}
        if canary is None or canary["revision"] == (before.get("canary") or {}).get("revision"):
            return
        if hand.get("verb") != "undo" and canary["sha256"] != after["stable"]["sha256"]:
            assert canary["sha256"] not in {block["sha256"] for block in now}, "a blocked artifact is back"

    def check_guard(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """The arm that was proven goes when its time is over, when it serves again, or when a person says so."""
        old = before.get("previous")
        if old is None or old == after.get("previous") or old["revision"] == after["stable"]["revision"]:
            return
        if after.get("previous"):
            assert old["revision"] == after["previous"]["revision"], "a guard gave way to another"
            return
        lasted = (self.now - datetime.fromisoformat(before["promotedAt"])).total_seconds()
        values = {item["value"] for item in before.get("decisions", ())}
        ended = (item for item in after.get("decisions", ()) if item["value"] not in values)
        by_hand = any(item["verb"] in ("skip", "promote") and item["outcome"] == "obeyed" for item in ended)
        assert by_hand or lasted >= self.spec["rollout"]["keepForSeconds"], f"the guard ended after {lasted} s"

    def check_promotion(self, revision: str) -> None:
        """No path promotes without its evidence."""
        assert self.prometheus
        began = datetime.fromisoformat(self.status["rolloutStartedAt"])
        returns = [value for at, arm, value in self.episodes if arm == revision and at > began]
        needed = sum(step.get("minEpisodes", 0) for step in self.spec["rollout"]["steps"])
        assert len(returns) >= needed, f"promoted on {len(returns)} of {needed} episodes"
        # The very first model may be a bad one, and then another one is as good: the bar is the old stable arm's.
        assert sum(returns) / len(returns) >= 0.8 * self.quality[self.status["stable"]["uri"]]
        self.promotions.append(revision)

    def check(self) -> None:
        """The invariants between any two writes."""
        table = self.routing().table
        stables = [arm.revision for arm in table.arms if arm.role == "stable"] if table else []
        if table is None or not stables:
            assert not self.status.get("stable"), "stable was lost from the table"
            assert not self.shares() or not sum(self.shares().values()), "users are led where nothing serves"
            return
        assert len(stables) == 1
        for arm in table.arms:
            self.check_pods(arm)
        for revision, share in self.shares().items():
            if revision not in stables and share and revision != self._warm():
                assert (self.status.get("canary") or self.status["stable"])["revision"] == revision
                if self.status.get("canary"):
                    highest = self.spec["rollout"]["steps"][self.status["step"]]["weight"]
                    assert share <= highest, "the canary's share ran ahead of the step"
        block = self.status.get("blockedRevision")
        canary = self.status.get("canary")
        assert not (block and canary and block["revision"] == canary["revision"]), "a blocked revision is back"

    def check_pods(self, arm: Arm) -> None:
        """An arm of the table has pods, unless a route draws that names it no longer."""
        route = self.routing().route
        left_over = route is not None and not arm.weight and arm.revision not in route.weights
        assert left_over or f"md-{arm.revision}" in self.deployments, "users are led to an arm without pods"

    def _warm(self) -> str | None:
        """The arm that served before, and is trusted with everything."""
        previous = self.status.get("previous")
        return previous["revision"] if previous else None

    def tick(self, seconds: int) -> None:
        """Time passes: pods start, agents play episodes by the table in force."""
        for _ in range(seconds):
            self.now += timedelta(seconds=1)
            for deployment in self.deployments.values():
                broken = deployment["metadata"]["labels"][names.LABEL_REVISION] in self.broken
                replicas = deployment["spec"]["replicas"]
                deployment["status"] = {"replicas": replicas, "readyReplicas": 0 if broken else replicas}
            shares = self.shares()
            for _ in range(self.per_second if self.traffic and shares and not self.stopped() else 0):
                revision = self.random.choices(list(shares), list(shares.values()))[0]
                self._begin(revision)
            for revision, value, began in self.opened.ended(self.now):
                if not self.touched(began):
                    self.episodes.append((self.now, revision, value))

    def stopped(self) -> bool:
        """Whether an override lets no episode open."""
        return any(item.instead != "fixed" and item.in_force(self.now) for item in self._overrides())

    def touched(self, began: datetime) -> bool:
        """Whether a person decided at any time of an episode that ends now: no arm's outcomes have it."""
        return any(item.since <= self.now and began < item.until for item in self._overrides())

    def _overrides(self) -> Sequence[Override]:
        """Those of all agents: the simulated users are none of the agents that an order names."""
        table = self.routing().table
        return [item for item in table.overrides or () if item.agent is None] if table else []

    def _begin(self, revision: str) -> None:
        """An agent opens an episode; it ends after a while, or never."""
        value, hangs = self.outcome(revision), self.hangs.get(self.model_of(revision), 0.0)
        ends = None if hangs and self.random.random() < hangs else self.now + timedelta(seconds=self.seconds_of(value))
        self.opened.open(revision, self.now, ends, value)

    def seconds_of(self, value: float) -> float:
        """How long an episode lasts that returns `value`."""
        return self.lasts

    def outcome(self, revision: str) -> float:
        """Return of the arm's next episode."""
        return self.quality[self.model_of(revision)]

    def model_of(self, revision: str) -> str:
        model = arms([self.deployments[f"md-{revision}"]], [])[revision].model
        assert model is not None
        return model.uri

    def weight(self, model: str) -> int:
        return sum(share for revision, share in self.shares().items() if self.model_of(revision) == model)

    def wish(self, number: int, quality: float) -> None:
        self.quality[uri(number)] = quality
        self.spec["model"] = {"uri": uri(number), "sha256": digest(number)}

    def rise(self, number: int, quality: float, weight: int) -> None:
        """Somebody applies another model, and it gets so many percent of the episodes."""
        self.wish(number, quality)
        while self.weight(uri(number)) != weight:
            self.run(1)

    def promote(self, number: int, quality: float) -> None:
        """Somebody applies another model, and it becomes stable."""
        before = len(self.promotions)
        self.wish(number, quality)
        while len(self.promotions) == before:
            self.run(1)

    def run(self, seconds: int) -> None:
        """Reconcile every second."""
        for _ in range(seconds):
            for _ in range(8):
                if self.reconcile().requeue_after != 0.0:
                    break
            self.tick(1)

    def settle(self) -> str:
        """Everything works and people let it run: the phase it ends in."""
        self.prometheus, self.traffic, self.skew = True, True, 0
        self.spec.pop("suspend", None)
        self.broken.clear()
        if self.status.get("standingOrder") and self.status["standingOrder"]["verb"] == "pause":
            self.annotations[names.ANNOTATION_RESUME] = f"{self.status['canary']['revision']} at {self.now}"
        for _ in range(60):
            self.run(15)
            if self.status["phase"] in ("Healthy", "RolledBack"):
                break
        return str(self.status["phase"])


def fields(snapshot: Snapshot) -> dict[str, Any]:
    return {name: getattr(snapshot, name) for name in Snapshot.__dataclass_fields__}
