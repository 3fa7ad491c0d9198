"""Whole rollouts against a simulated cluster: every write is checked, and the operator dies wherever it likes."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from learnloop_api import names
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.rollout.decide import current, decide
from learnloop_operator.core.rollout.evidence import ArmEvidence, Evidence
from learnloop_operator.core.rollout.observe import arms
from learnloop_operator.core.rollout.revision import resolve
from learnloop_operator.core.rollout.table import read
from learnloop_operator.core.rollout.windows import windows
from learnloop_operator.core.rollout.world import Defaults, Snapshot

GOOD, BETTER, BAD = 300.0, 480.0, 9.0
STEPS = [{"weight": weight, "minEpisodes": 6} for weight in (10, 25, 50, 100)]
SHA = "ab" * 32


def uri(number: int) -> str:
    return f"https://models.example/{number}.onnx"


class Cluster:
    """The API server, the kubelets, the agents and Prometheus, as far as a rollout can see them."""

    def __init__(self, steps: list[dict[str, Any]] | None = None, keep: int = 30) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.spec: dict[str, Any] = {
            "model": {"uri": uri(0), "sha256": SHA},
            "rollout": {"steps": steps or STEPS, "keepForSeconds": keep, "progressDeadlineSeconds": 60},
            "analysis": {"intervalSeconds": 2},
        }
        self.annotations: dict[str, str] = {}
        self.status: dict[str, Any] = {}
        self.config_map: dict[str, Any] | None = None
        self.deployments: dict[str, dict[str, Any]] = {}
        self.services: set[str] = set()
        self.quality = {uri(0): GOOD}
        self.episodes: list[tuple[datetime, str, float]] = []
        self.prometheus, self.traffic = True, True
        self.lag = 0
        """Seconds by which Prometheus is behind: everything is scraped that long ago."""
        self.broken: set[str] = set()
        self.events: list[str] = []
        self.promotions: list[str] = []
        self.random = random.Random(7)

    def snapshot(self) -> Snapshot:
        metadata = {"name": "md", "namespace": "ns", "uid": "u", "generation": 1, "annotations": self.annotations}
        body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "status": self.status}
        spec = ModelDeploymentSpec.model_validate(self.spec)
        bare = Snapshot(
            now=self.now,
            object=body,
            spec=spec,
            before=ModelDeploymentStatus.model_validate(self.status),
            desired=resolve(spec, None),
            arms=arms(self.deployments.values(), []),
            routing=read(self.config_map),
            defaults=Defaults("image", "http://data"),
        )
        asked = {window.revision: window.seconds for window in windows(bare, current(bare))}
        if not asked:
            return bare
        if not self.prometheus:
            return Snapshot(**{**fields(bare), "evidence": Evidence(unavailable="Prometheus does not answer")})
        known = {revision: self.seen(revision, seconds) for revision, seconds in asked.items()}
        return Snapshot(**{**fields(bare), "evidence": Evidence(known)})

    def seen(self, revision: str, seconds: float) -> ArmEvidence:
        since, seen = self.now - timedelta(seconds=seconds), self.now - timedelta(seconds=self.lag)
        returns = [value for at, arm, value in self.episodes if arm == revision and since < at <= seen]
        mean = sum(returns) / len(returns) if returns else None
        return ArmEvidence(len(returns), mean, 1.0 if returns else None, 0.0 if returns else None, seen_at=seen)

    def reconcile(self, crash_after: int | None = None) -> Plan:
        """One pass; the operator dies after `crash_after` writes."""
        snapshot = self.snapshot()
        plan = decide(snapshot)
        assert decide(snapshot) == plan, "not deterministic"
        self.check_order(plan)
        writes = [("apply", item) for item in plan.apply] + [("delete", item) for item in plan.delete]
        writes.append(("status", plan.status))
        for verb, item in writes[:crash_after]:
            getattr(self, f"_{verb}")(item)
            self.check()
        if crash_after is None or crash_after >= len(writes):
            self.events += [event.reason for event in plan.events]
        return plan

    def check_order(self, plan: Plan) -> None:
        assert plan.apply[0]["kind"] in ("ConfigMap", "HTTPRoute"), "the route comes first"
        live = read(self.config_map).table
        listed = {f"md-{arm.revision}" for arm in live.arms} if live else set()
        assert not listed & {ref.name for ref in plan.delete}, "an arm went while the live table still named it"

    def _apply(self, manifest: dict[str, Any]) -> None:
        name = manifest["metadata"]["name"]
        if manifest["kind"] == "ConfigMap":
            old, new = read(self.config_map).table, read(manifest).table
            assert new is not None
            assert old is None or new == old or new.generation > old.generation, "a changed table needs a generation"
            self.config_map = manifest
        elif manifest["kind"] == "Deployment":
            status = self.deployments.get(name, {}).get("status", {})
            self.deployments[name] = {**manifest, "status": status}
        elif manifest["kind"] == "Service":
            self.services.add(name)

    def _delete(self, ref: Any) -> None:
        if ref.kind == "Deployment":
            self.deployments.pop(ref.name, None)

    def _status(self, status: dict[str, Any]) -> None:
        before, after = self.status.get("stable"), status.get("stable")
        if before and after and before["revision"] != after["revision"] and status.get("previous"):
            self.check_promotion(after["revision"])
        assert status["verdict"]
        assert len(status["conditions"]) == 7
        self.check_step(self.status, status)
        self.status = status

    def check_step(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """A step is passed on episodes that ended in it, however late Prometheus hears of them. For the first step
        all of the rollout's count: there was no weight before."""
        if before.get("step") is not None and after.get("step") == before["step"] + 1:
            began = datetime.fromisoformat(before["stepStartedAt" if before["step"] else "rolloutStartedAt"])
            arm = before["canary"]["revision"]
            count = sum(1 for at, revision, _ in self.episodes if revision == arm and at > began)
            needed = self.spec["rollout"]["steps"][before["step"]]["minEpisodes"]
            assert count >= needed, f"step {before['step']} passed on {count} of {needed} episodes"

    def check_promotion(self, revision: str) -> None:
        """No path promotes without its evidence."""
        assert self.prometheus
        began = datetime.fromisoformat(self.status["rolloutStartedAt"])
        returns = [value for at, arm, value in self.episodes if arm == revision and at > began]
        needed = sum(step["minEpisodes"] for step in self.spec["rollout"]["steps"])
        assert len(returns) >= needed, f"promoted on {len(returns)} of {needed} episodes"
        # The very first model may be a bad one, and then another bad one is no worse: the bar is the old stable arm's.
        assert sum(returns) / len(returns) >= 0.8 * self.quality[self.status["stable"]["uri"]]
        self.promotions.append(revision)

    def check(self) -> None:
        """What must hold between any two writes."""
        table = read(self.config_map).table
        if table is None or not table.arms:
            assert not self.status.get("stable"), "stable was lost from the table"
            return
        assert [arm.role for arm in table.arms].count("stable") == 1
        for arm in table.arms:
            assert f"md-{arm.revision}" in self.deployments, "a table names an arm without pods"
            if arm.role == "canary" and arm.weight:
                assert (self.status.get("canary") or self.status["stable"])["revision"] == arm.revision
                if self.status.get("canary"):
                    assert arm.weight <= STEPS[self.status["step"]]["weight"], "the table ran ahead of the step"
        pinned = self.status.get("blockedRevision")
        canary = self.status.get("canary")
        assert not (pinned and canary and pinned["revision"] == canary["revision"]), "a blocked revision is back"

    def tick(self, seconds: int) -> None:
        """Time passes: pods start, agents play episodes by the table in force."""
        for _ in range(seconds):
            self.now += timedelta(seconds=1)
            for deployment in self.deployments.values():
                broken = deployment["metadata"]["labels"][names.LABEL_REVISION] in self.broken
                replicas = deployment["spec"]["replicas"]
                deployment["status"] = {"replicas": replicas, "readyReplicas": 0 if broken else replicas}
            table = read(self.config_map).table
            for _ in range(4 if self.traffic and table and table.arms else 0):
                assert table is not None
                arm = self.random.choices(table.arms, [arm.weight for arm in table.arms])[0]
                self.episodes.append((self.now, arm.revision, self.quality[self.model_of(arm.revision)]))

    def model_of(self, revision: str) -> str:
        found = arms(self.deployments.values(), [])[revision].model
        assert found is not None
        return found.uri

    def weight(self, model: str) -> int:
        table = read(self.config_map).table
        return sum(arm.weight for arm in table.arms if self.model_of(arm.revision) == model) if table else 0

    def wish(self, number: int, quality: float) -> None:
        self.quality[uri(number)] = quality
        self.spec["model"] = {"uri": uri(number), "sha256": SHA}

    def run(self, seconds: int) -> None:
        """Reconcile every second."""
        for _ in range(seconds):
            for _ in range(8):
                if self.reconcile().requeue_after != 0.0:
                    break
            self.tick(1)

    def settle(self) -> str:
        """Everything works and people let it run: the phase it ends in."""
        self.prometheus, self.traffic = True, True
        self.spec.pop("suspend", None)
        self.broken.clear()
        for _ in range(60):
            self.run(15)
            if self.status["phase"] in ("Healthy", "RolledBack"):
                break
        return str(self.status["phase"])


def fields(snapshot: Snapshot) -> dict[str, Any]:
    return {name: getattr(snapshot, name) for name in Snapshot.__dataclass_fields__}


@pytest.fixture
def serving() -> Cluster:
    """A cluster that serves its first model."""
    cluster = Cluster()
    cluster.run(10)
    assert cluster.status["phase"] == "Healthy"
    return cluster


def test_the_first_model_serves_every_episode_without_a_canary(serving: Cluster) -> None:
    assert serving.events == ["FirstModelServed"]
    assert serving.weight(uri(0)) == 100


def test_a_better_model_climbs_step_by_step_and_the_old_arm_goes_after_keep_for(serving: Cluster) -> None:
    serving.wish(1, BETTER)
    seen = []
    for _ in range(400):
        serving.run(1)
        if serving.weight(uri(1)) not in seen:
            seen.append(serving.weight(uri(1)))
        if serving.status["phase"] == "Healthy" and serving.promotions:
            break
    assert seen == [0, 10, 25, 50, 100]
    assert serving.status["stable"]["uri"] == uri(1)
    assert serving.status["stable"]["meanReturn"] == BETTER
    serving.run(3)
    assert len(serving.deployments) == 1


@pytest.mark.parametrize("lag", [1, 2, 5])
def test_episodes_that_ended_before_a_step_do_not_count_for_it_however_late_they_are_seen(lag: int) -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.lag = lag
    cluster.wish(1, BETTER)
    assert cluster.settle() == "Healthy"
    assert cluster.promotions


def test_promotion_changes_nothing_but_replicas_on_any_deployment(serving: Cluster) -> None:
    serving.wish(1, BETTER)
    serving.run(5)
    templates = {name: item["spec"]["template"] for name, item in serving.deployments.items()}
    assert len(templates) == 2
    while not serving.promotions:
        serving.run(1)
        assert {name: item["spec"]["template"] for name, item in serving.deployments.items()} == templates


def test_a_bad_model_is_taken_back_at_its_first_step_with_numbers_in_the_sentence(serving: Cluster) -> None:
    serving.wish(1, BAD)
    serving.run(90)
    pinned = serving.status["blockedRevision"]
    assert pinned["message"].startswith("RolledBack at 10 %: return of the canary 9 vs 300 of stable over ")
    assert pinned["message"].endswith("episodes; bar 0.8×")
    assert serving.status["phase"] == "RolledBack"
    assert serving.weight(uri(0)) == 100
    assert len(serving.deployments) == 1
    assert serving.events.count("RolledBack") == 1


def test_without_prometheus_nothing_is_promoted_and_nothing_is_rolled_back(serving: Cluster) -> None:
    serving.wish(1, BAD)
    while serving.weight(uri(1)) != 10:
        serving.run(1)
    serving.prometheus = False
    serving.run(200)
    assert serving.weight(uri(1)) == 10
    assert "no evidence: Prometheus does not answer" in serving.status["verdict"]
    data = next(item for item in serving.status["conditions"] if item["type"] == "DataAvailable")
    assert (data["status"], data["reason"]) == ("False", "NoEvidence")


def test_without_traffic_a_step_holds_and_says_how_much_is_missing(serving: Cluster) -> None:
    serving.wish(1, BETTER)
    serving.traffic = False
    serving.run(200)
    assert serving.weight(uri(1)) == 10
    assert "0 of 6 canary episodes finished, 6 more needed" in serving.status["verdict"]


def test_a_blocked_revision_stays_away_until_it_is_retried(serving: Cluster) -> None:
    serving.wish(1, BAD)
    serving.run(90)
    serving.run(60)
    assert serving.events.count("CanaryCreated") == 1
    serving.quality[uri(1)] = BETTER
    serving.annotations[names.ANNOTATION_RETRY] = "1"
    assert serving.settle() == "Healthy"
    assert serving.status["stable"]["uri"] == uri(1)


def test_a_promoted_model_that_turns_bad_is_swapped_back_by_one_routing_write() -> None:
    cluster = Cluster(keep=600)
    cluster.run(10)
    cluster.wish(1, BETTER)
    while not cluster.promotions:
        cluster.run(1)
    cluster.run(20)
    cluster.quality[uri(1)] = BAD
    generation = cluster.status["routingGeneration"]
    while cluster.status["phase"] == "Guarding":
        cluster.run(1)
    assert cluster.status["blockedRevision"]["message"].startswith("RolledBack at 100 % while guarding: return of")
    assert cluster.status["routingGeneration"] == generation + 1
    assert cluster.weight(uri(0)) == 100


def test_a_pause_waits_for_its_approval_and_an_approval_counts_once() -> None:
    steps = [{**step, "pause": step["weight"] in (10, 50)} for step in STEPS]
    cluster = Cluster(steps)
    cluster.run(10)
    cluster.wish(1, BETTER)
    cluster.run(120)
    assert (cluster.status["phase"], cluster.weight(uri(1))) == ("Paused", 10)
    revision = cluster.status["canary"]["revision"]
    cluster.annotations[names.ANNOTATION_APPROVE] = revision
    cluster.run(120)
    assert (cluster.status["phase"], cluster.weight(uri(1))) == ("Paused", 50)
    cluster.annotations[names.ANNOTATION_APPROVE] = f"{revision}/3"
    assert cluster.settle() == "Healthy"


def test_an_abort_takes_the_canary_back_at_once(serving: Cluster) -> None:
    serving.wish(1, BETTER)
    while serving.weight(uri(1)) != 10:
        serving.run(1)
    serving.annotations[names.ANNOTATION_ABORT] = serving.status["canary"]["revision"]
    serving.run(1)
    assert serving.weight(uri(1)) == 0
    assert serving.status["blockedRevision"]["reason"] == "Aborted"


def test_suspend_freezes_the_weights_and_renews_the_dead_mans_switch_sparingly(serving: Cluster) -> None:
    serving.wish(1, BETTER)
    while serving.weight(uri(1)) != 10:
        serving.run(1)
    serving.spec["suspend"] = True
    before = read(serving.config_map).table
    serving.run(700)
    after = read(serving.config_map).table
    assert before is not None
    assert after is not None
    assert before.expires_at is not None
    assert after.expires_at is not None
    assert after.expires_at > serving.now
    assert after.generation - before.generation <= 3
    assert (serving.weight(uri(1)), serving.status["phase"]) == (10, "Suspended")


def test_going_back_to_the_stable_model_withdraws_the_canary_without_blocking_it(serving: Cluster) -> None:
    serving.wish(1, BETTER)
    while serving.weight(uri(1)) != 10:
        serving.run(1)
    serving.wish(0, GOOD)
    serving.run(3)
    assert (serving.weight(uri(1)), serving.status["phase"]) == (0, "Healthy")
    assert "blockedRevision" not in serving.status


def test_a_third_model_replaces_the_canary_and_starts_at_the_bottom(serving: Cluster) -> None:
    serving.wish(1, BETTER)
    while serving.weight(uri(1)) != 25:
        serving.run(1)
    serving.wish(2, BETTER)
    serving.run(1)
    assert serving.weight(uri(1)) == 0
    assert "Superseded" in serving.events
    assert serving.settle() == "Healthy"
    assert serving.status["stable"]["uri"] == uri(2)


def test_a_canary_that_never_gets_ready_is_rolled_back_at_its_deadline(serving: Cluster) -> None:
    serving.wish(1, BETTER)
    serving.run(1)
    serving.broken.add(serving.status["canary"]["revision"])
    serving.run(70)
    assert serving.status["blockedRevision"]["reason"] == "ProgressDeadlineExceeded"
    assert "before its first episode" in serving.status["verdict"]


def test_a_quiet_world_costs_no_write(serving: Cluster) -> None:
    serving.run(5)
    config_map, status = serving.config_map, serving.status
    plan = serving.reconcile()
    assert (plan.apply[0], plan.status, plan.events, plan.delete) == (config_map, status, (), ())
    serving.tick(3600)
    assert serving.reconcile().status == status


def test_a_lost_status_does_not_lose_the_arm_that_serves(serving: Cluster) -> None:
    serving.status = {}
    serving.wish(1, BAD)
    serving.run(90)
    assert serving.status["stable"]["uri"] == uri(0)
    assert serving.status["blockedRevision"]["uri"] == uri(1)


@pytest.mark.parametrize("quality", [BETTER, BAD])
@pytest.mark.parametrize("writes", range(13))
def test_dying_after_any_write_of_every_pass_ends_in_the_same_place(quality: float, writes: int) -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.wish(1, quality)
    for number in range(150):
        cluster.reconcile(crash_after=writes if number % 2 else None)
        cluster.tick(1)
    cluster.settle()
    assert cluster.status["stable"]["uri"] == (uri(1) if quality == BETTER else uri(0))
    assert cluster.weight(cluster.status["stable"]["uri"]) == 100


def test_a_rollback_whose_status_was_lost_is_finished_even_when_the_evidence_is_gone(serving: Cluster) -> None:
    serving.wish(1, BAD)
    while not (serving.weight(uri(1)) == 10 and serving.snapshot().evidence.arms):
        serving.run(1)
    while "blockedRevision" not in decide(serving.snapshot()).status:
        serving.reconcile()
        serving.tick(1)
    serving.reconcile(crash_after=1)
    assert "blockedRevision" not in serving.status
    serving.prometheus = False
    serving.run(10)
    assert serving.status["blockedRevision"]["uri"] == uri(1)
    assert serving.weight(uri(1)) == 0


class Chaos(RuleBasedStateMachine):
    """Anything people, pods, Prometheus and the operator may do, in any order."""

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster()
        self.models = 0

    @rule(quality=st.sampled_from([GOOD, BETTER, BAD]))
    def new_model(self, quality: float) -> None:
        self.models += 1
        self.cluster.wish(self.models, quality)

    @rule(number=st.integers(0, 5))
    def go_back(self, number: int) -> None:
        model = uri(min(number, self.models))
        self.cluster.spec["model"] = {"uri": model, "sha256": SHA}

    @rule(seconds=st.integers(1, 40))
    def run(self, seconds: int) -> None:
        self.cluster.run(seconds)

    @rule(seconds=st.integers(0, 40))
    def sleep(self, seconds: int) -> None:
        self.cluster.tick(seconds)

    @rule(writes=st.integers(0, 14))
    def die(self, writes: int) -> None:
        self.cluster.reconcile(crash_after=writes)

    @rule(up=st.booleans())
    def prometheus(self, up: bool) -> None:
        self.cluster.prometheus = up

    @rule(seconds=st.integers(0, 5))
    def scrape_late(self, seconds: int) -> None:
        self.cluster.lag = seconds

    @rule(flows=st.booleans())
    def traffic(self, flows: bool) -> None:
        self.cluster.traffic = flows

    @rule(on=st.booleans())
    def suspend(self, on: bool) -> None:
        self.cluster.spec["suspend"] = on

    @rule()
    def retry(self) -> None:
        self.cluster.annotations[names.ANNOTATION_RETRY] = str(self.cluster.now)

    @precondition(lambda self: self.cluster.status.get("canary"))
    @rule()
    def abort(self) -> None:
        self.cluster.annotations[names.ANNOTATION_ABORT] = self.cluster.status["canary"]["revision"]

    @precondition(lambda self: self.cluster.status.get("canary"))
    @rule()
    def break_canary(self) -> None:
        self.cluster.broken = {self.cluster.status["canary"]["revision"]}

    @rule()
    def mend(self) -> None:
        self.cluster.broken.clear()

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            assert self.cluster.settle() in ("Healthy", "RolledBack"), self.cluster.status["verdict"]
            assert self.cluster.weight(self.cluster.status["stable"]["uri"]) == 100


TestChaos = Chaos.TestCase
TestChaos.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=15, suppress_health_check=list(HealthCheck)
)
