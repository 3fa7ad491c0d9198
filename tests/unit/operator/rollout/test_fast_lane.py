"""The fast lane's evidence, and what a decision makes of it."""

import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api import names
from learnloop_api.kinds.analysis import Analysis
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.wire.routing import ROUTING_KEY, RoutingTable
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.rollout.decide import decide
from learnloop_operator.core.rollout.direct import UNREACHABLE, UNUSABLE, Direct, Health, at_weight, looked, missed
from learnloop_operator.core.rollout.evidence import Evidence
from learnloop_operator.core.rollout.gross import breach
from learnloop_operator.core.rollout.revision import resolve
from learnloop_operator.core.rollout.tally import Reading, between
from learnloop_operator.core.rollout.world import ArmWorld, Defaults, Snapshot
from learnloop_operator.core.times import stamp

START = datetime(2026, 1, 1, tzinfo=UTC)
NOW = START + timedelta(seconds=4)
METRICS = [
    {"name": "success", "type": "success", "min": 0.8, "minEpisodes": 3},
    {"name": "errors", "type": "errors", "max": 0.05, "minEpisodes": 3},
    {"name": "slow", "type": "latency", "max": 0.1, "minEpisodes": 1},
    {"name": "return", "type": "return", "min": 50, "returnRange": {"lowest": 0, "highest": 100}, "minEpisodes": 3},
]
SPEC: dict[str, Any] = {
    "model": {"uri": "https://models.example/1.onnx", "sha256": "ab" * 32},
    "rollout": {"steps": [{"weight": 10}, {"weight": 100}]},
    "analysis": {"metrics": METRICS},
}
ANALYSIS = Analysis.model_validate(SPEC["analysis"])
STABLE, NEW = "0" * 8, "md-pod"


class Pod:
    """The counters of one process."""

    def __init__(self, process: float = 1.0) -> None:
        self.process = process
        episodes = ("ended/success", "ended/failure", "ended/error", "ended/withdrawn", "gain", "loss")
        requests = ("requests", "failed", "within/0.05", "within/0.1", "within/0.25", "within/inf")
        self.counters = dict.fromkeys((*episodes, *requests), 0.0)

    def episode(self, outcome: str = "success", value: float = 80.0, seconds: float = 0.01) -> None:
        self.counters[f"ended/{outcome}"] += 1
        self.counters["gain"] += value
        self.request(seconds=seconds)

    def request(self, *, fails: bool = False, seconds: float = 0.01) -> None:
        self.counters["requests"] += 1
        self.counters["failed"] += fails
        for bound in (0.05, 0.1, 0.25, math.inf):
            self.counters[f"within/{bound!r}"] += seconds <= bound

    def read(self, **damaged: float) -> Reading:
        return Reading(self.process, {**self.counters, **damaged})


def watched(weight: int = 10) -> Direct:
    return Direct("1" * 8, stamp(START), weight)


def look(direct: Direct, *pods: Pod, second: int = 1) -> Direct:
    readings = {f"{NEW}-{index}": pod.read() for index, pod in enumerate(pods)}
    return looked(direct, readings, ANALYSIS, START + timedelta(seconds=second), second + 1)


def after(pod: Pod, *outcomes: Any, direct: Direct | None = None) -> Direct:
    """The evidence after looks at `pod`, between each of which one of `outcomes` happens."""
    direct = look(direct or watched(), pod)
    for second, happens in enumerate(outcomes, 2):
        happens()
        direct = look(direct, pod, second=second)
    return direct


def said(direct: Direct) -> str:
    return breach(ANALYSIS, direct.alarms, "the canary")


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"outcome": "error"}, "error rate of the canary 1 over"),
        ({"outcome": "failure"}, "success rate of the canary 0 over"),
        ({"value": 0.0}, "return of the canary 0 over"),
        ({"seconds": 0.2}, "requests to the canary took longer than 0.1 s; bar at most 0.11"),
    ],
)
def test_every_hard_bound_can_be_broken_and_says_its_numbers(how: dict[str, Any], sentence: str) -> None:
    pod = Pod()
    assert sentence in said(after(pod, *[lambda: pod.episode(**how)] * 40))


def test_failing_requests_need_no_episode_to_end() -> None:
    pod = Pod()
    direct = after(pod, *[lambda: pod.request(fails=True)] * 8)
    assert said(direct).startswith("1 of ")
    assert "requests to the canary failed; bar at most 0.05; read from its own pods" in said(direct)


def test_a_good_arm_breaks_nothing() -> None:
    pod = Pod()
    assert said(after(pod, *[pod.episode] * 300)) == ""


def test_what_a_process_counted_before_the_first_look_is_not_asked() -> None:
    pod = Pod()
    for _ in range(100):
        pod.episode("error")
        pod.request(fails=True)
    assert said(after(pod, pod.episode, pod.episode)) == ""


def test_outcomes_at_weight_0_are_an_earlier_rollouts() -> None:
    pod = Pod()
    before = after(pod, *[lambda: pod.episode("error")] * 50, direct=watched(0))
    assert not before.alarms
    assert said(after(pod, *[pod.episode] * 5, direct=at_weight(before, 10))) == ""


def test_the_first_episodes_at_a_weight_do_not_count_for_the_short_ones_end_first() -> None:
    pod = Pod()
    direct = after(pod, *[lambda: pod.episode("failure", 80.0)] * 3)
    assert all(alarm.recent.n == 0 for claim, alarm in direct.alarms.items() if claim.startswith("success"))
    raised = at_weight(direct, 25)
    assert (raised.episodes, raised.alarms) == (0.0, direct.alarms)


@pytest.mark.parametrize("damage", [{"ended/error": math.nan}, {"failed": math.inf}, {"gain": -1.0}])
def test_a_number_that_is_none_leaves_the_evidence_as_it_is(damage: dict[str, float]) -> None:
    pod = Pod()
    before = after(pod, pod.episode, pod.episode)
    pod.episode("error")
    after_it = looked(before, {f"{NEW}-0": pod.read(**damage)}, ANALYSIS, NOW, 5)
    assert (after_it.alarms, after_it.last, after_it.seen_at) == (before.alarms, before.last, before.seen_at)


def test_a_process_that_was_replaced_begins_anew() -> None:
    old, new = Pod(1.0), Pod(2.0)
    for _ in range(50):
        new.request(fails=True)
    assert between(old.read(), new.read()) == {}
    assert said(look(look(watched(), old), new)) == ""
    fell = Reading(1.0, {**old.counters, "requests": 5.0})
    assert between(fell, old.read()) == {}


class Fate:
    """What may happen to an arm's pods between two looks."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.pods = [Pod(1.0), Pod(2.0)]

    def pass_second(self) -> None:
        for pod in self.pods:
            for _ in range(self.source.randrange(8)):
                pod.episode("success" if self.source.random() < 0.97 else "failure")
                pod.request(fails=self.source.random() < 0.01)

    def damage(self, kind: str) -> None:
        if kind == "restart":
            self.pods[0] = Pod(self.source.random())
        elif kind == "born failing":
            self.pods[0] = Pod(self.source.random())
            for _ in range(100):
                self.pods[0].request(fails=True)
        elif kind == "gone":
            self.pods = self.pods[1:] or [Pod(self.source.random())]
        elif kind == "more":
            self.pods.append(Pod(self.source.random()))


@given(
    seed=st.integers(0, 10**6),
    kinds=st.lists(st.sampled_from(["quiet", "restart", "born failing", "gone", "more", "missed", "nan"]), max_size=40),
)
def test_no_fate_of_the_pods_takes_a_good_model_back(seed: int, kinds: list[str]) -> None:
    fate, direct = Fate(seed), watched()
    for second, kind in enumerate(kinds, 1):
        fate.pass_second()
        fate.damage(kind)
        if kind == "missed":
            direct = missed(direct, UNREACHABLE, START)
        elif kind == "nan":
            direct = looked(direct, {f"{NEW}-0": fate.pods[0].read(failed=math.nan)}, ANALYSIS, START, second)
        else:
            direct = look(direct, *fate.pods, second=second)
        assert said(direct) == ""


def test_equal_models_are_taken_back_less_often_than_the_budget_allows() -> None:
    """Arms exactly at two of their bounds, read each second for a minute."""
    source, rollouts, false = random.Random(3), 60, 0
    wide = ANALYSIS.model_copy(update={"alpha": 0.2})
    for _ in range(rollouts):
        pod, direct = Pod(), watched()
        for second in range(1, 60):
            for _ in range(3):
                pod.episode(source.choices(("success", "failure", "error"), (0.8, 0.15, 0.05))[0])
            readings = {NEW: pod.read()}
            direct = looked(direct, readings, wide, START + timedelta(seconds=second), second)
            if breach(wide, direct.alarms, "the canary"):
                false += 1
                break
    assert false <= 3  # 0.1 * 0.2 * 60 = 1.2 are allowed on average


def test_the_lanes_state_changes_after_a_while_and_not_with_every_look() -> None:
    health, changes = Health(), 0
    for second in range(300):
        before = health.problem
        health = health.after(UNREACHABLE if second % 4 else "", START + timedelta(seconds=second))
        changes += health.problem != before
    assert changes == 0
    for second in range(300, 306):
        health = health.after(UNUSABLE, START + timedelta(seconds=second))
    assert health.problem == UNUSABLE
    for second in range(306, 340):
        health = health.after("", START + timedelta(seconds=second))
    assert health.problem == ""


# What a decision makes of it.


def snapshot(direct: Direct | None, *, promoted: bool = False, **more: Any) -> Snapshot:
    """A canary at 10 %, or promoted and under guard; Prometheus is gone."""
    spec = ModelDeploymentSpec.model_validate(SPEC)
    model = resolve(spec, None).model
    assert model is not None
    arms: list[dict[str, Any]] = [
        {"revision": STABLE, "uri": "https://models.example/0.onnx", "sha256": "cd" * 32, "readyReplicas": 1},
        {"revision": model.revision, "uri": model.uri, "sha256": model.sha256, "readyReplicas": 1},
    ]
    roles = {"previous": arms[0], "stable": arms[1]} if promoted else {"stable": arms[0], "canary": arms[1]}
    weights = {} if promoted else {"weight": 10, "step": 0, "stepStartedAt": stamp(START)}
    status = {**roles, **weights, "rolloutStartedAt": stamp(START), "promotedAt": stamp(START) if promoted else None}
    metadata = {"name": "md", "namespace": "ns", "uid": "u", "generation": 1, "annotations": {}}
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "status": status}
    fields: dict[str, Any] = {
        "now": NOW,
        "object": body,
        "spec": spec,
        "before": ModelDeploymentStatus.model_validate(status),
        "desired": resolve(spec, None),
        "arms": {revision: ArmWorld(ready=1, replicas=1) for revision in (STABLE, model.revision)},
        "defaults": Defaults("image", "http://data"),
        "evidence": Evidence(unavailable="Prometheus does not answer"),
        "direct": direct and replace(direct, revision=model.revision),
    }
    return Snapshot(**{**fields, **more})


def broken(at: datetime = NOW) -> Direct:
    pod = Pod()
    return replace(after(pod, *[lambda: pod.request(fails=True)] * 10), seen_at=at)


def weights(plan: Plan) -> dict[str, int]:
    """Weights in the first thing the plan writes."""
    first = plan.apply[0]
    assert first["kind"] == "ConfigMap"
    return {arm.revision: arm.weight for arm in RoutingTable.model_validate_json(first["data"][ROUTING_KEY]).arms}


def lane(plan: Plan) -> tuple[str, str]:
    return next((item["status"], item["reason"]) for item in plan.status["conditions"] if item["type"] == "FastLane")


def test_a_gross_breach_takes_the_canary_back_in_the_first_write_without_prometheus_and_at_once() -> None:
    plan = decide(snapshot(broken()))
    assert weights(plan) == {STABLE: 100}
    pin = plan.status["blockedRevision"]
    assert pin["reason"] == "GrossBreach"
    assert pin["message"].startswith("RolledBack at 10 %: 1 of ")
    assert plan.status["phase"] == "RolledBack"


def test_a_gross_breach_under_guard_swaps_back() -> None:
    plan = decide(snapshot(broken(), promoted=True))
    assert weights(plan) == {STABLE: 100}
    assert plan.status["blockedRevision"]["message"].startswith("RolledBack at 100 % while guarding: 1 of ")


@pytest.mark.parametrize(
    "direct",
    [
        None,
        broken(NOW - timedelta(seconds=30)),
        replace(broken(), rollout="2025-12-31T00:00:00Z"),
        replace(broken(), seen_at=None),
        watched(),
    ],
    ids=["nobody asked", "old news", "another rollout", "never seen", "nothing happened"],
)
def test_without_a_fresh_breach_of_this_rollout_the_canary_holds(direct: Direct | None) -> None:
    plan = decide(snapshot(direct))
    assert "blockedRevision" not in plan.status
    assert plan.status["weight"] == 10


def test_another_arms_breach_is_none() -> None:
    foreign = snapshot(broken())
    assert foreign.direct is not None
    plan = decide(replace(foreign, direct=replace(foreign.direct, revision=STABLE)))
    assert plan.status["weight"] == 10


def test_a_lane_that_is_turned_off_says_so_and_takes_nothing_back() -> None:
    off = {**SPEC, "analysis": {**SPEC["analysis"], "fastLane": {"enabled": False}}}
    plan = decide(snapshot(broken(), spec=ModelDeploymentSpec.model_validate(off)))
    assert (plan.status["weight"], lane(plan)) == (10, ("False", "Disabled"))


def test_the_condition_tells_whether_the_pods_can_be_read() -> None:
    assert lane(decide(snapshot(watched()))) == ("True", "Reading")
    assert lane(decide(snapshot(None))) == ("Unknown", "NotNeeded")
    degraded = replace(watched(), health=Health(UNREACHABLE))
    plan = decide(snapshot(degraded))
    assert lane(plan) == ("False", "PodsUnreachable")
    sentence = next(item["message"] for item in plan.status["conditions"] if item["type"] == "FastLane")
    assert "on port 8080: let it through, if a NetworkPolicy keeps it out; Prometheus alone" in sentence


def test_looks_that_show_nothing_new_change_nothing_in_the_status() -> None:
    pod = Pod()
    first = after(pod, pod.episode)
    second = look(first, pod, second=3)
    assert decide(snapshot(first)).status == decide(snapshot(second)).status
