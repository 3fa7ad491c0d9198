"""Rollouts judged by sequential tests, through the whole of `decide`, on a simulated cluster."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from learnloop_api import names
from learnloop_api.kinds.analysis import Analysis, MetricEvidence, MetricThreshold
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.wire.routing import RoutingTable
from learnloop_operator.core.plan import Plan
from learnloop_operator.core.rollout.decide import current, decide
from learnloop_operator.core.rollout.evidence import ArmEvidence, Evidence, Verdict
from learnloop_operator.core.rollout.observe import arms
from learnloop_operator.core.rollout.revision import resolve
from learnloop_operator.core.rollout.table import read
from learnloop_operator.core.rollout.trial import Trial, counts, load, looked, save
from learnloop_operator.core.rollout.verdict import after_promotion, weigh
from learnloop_operator.core.rollout.windows import windows
from learnloop_operator.core.rollout.world import Defaults, Snapshot
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.core.sequential.comparison import Memory, Pair

SUCCESS = {"name": "success", "type": "success", "test": "sequential", "maxDrop": 0.05}
RETURN = {
    "name": "return",
    "type": "return",
    "test": "sequential",
    "maxDrop": 50,
    "returnRange": {"lowest": -100, "highest": 400},
}


class World:
    """Two arms that play Bernoulli episodes, 40 a second, and an operator that looks every second."""

    def __init__(self, seed: int, canary: float, *metrics: dict[str, Any], stable: float = 0.9) -> None:
        self.source = np.random.default_rng(seed)
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.means, self.played = {"stable": stable, "canary": canary}, dict.fromkeys(("stable", "canary"), Counts())
        self.spec: dict[str, Any] = {
            "model": {"uri": "https://models.example/0.onnx", "sha256": "ab" * 32},
            "rollout": {"keepForSeconds": 30},
            "analysis": {"intervalSeconds": 1, "metrics": list(metrics or (SUCCESS,))},
        }
        self.status: dict[str, Any] = {}
        self.config_map: dict[str, Any] | None = None
        self.deployments: dict[str, dict[str, Any]] = {}
        self.prometheus, self.verdicts = True, []
        self.run(3)
        self.spec["model"]["uri"] = "https://models.example/1.onnx"

    def look(self) -> Plan:
        plan = decide(self.snapshot())
        for item in plan.apply:
            if item["kind"] == "ConfigMap":
                self.config_map = dict(item)
            if item["kind"] == "Deployment":
                ready = {"replicas": 1, "readyReplicas": item["spec"]["replicas"]}
                self.deployments[item["metadata"]["name"]] = {**item, "status": ready}
        for ref in plan.delete:
            self.deployments.pop(ref.name, None)
        self.status = dict(plan.status)
        self.verdicts.append(self.status["verdict"])
        return plan

    def snapshot(self) -> Snapshot:
        spec = ModelDeploymentSpec.model_validate(self.spec)
        metadata = {"name": "md", "namespace": "ns", "uid": "u", "generation": 1}
        head = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment"}
        bare: dict[str, Any] = {
            "now": self.now,
            "object": {**head, "metadata": metadata, "status": self.status},
            "spec": spec,
            "before": ModelDeploymentStatus.model_validate(self.status),
            "desired": resolve(spec, None),
            "arms": arms(self.deployments.values(), []),
            "routing": read(self.config_map),
            "defaults": Defaults("image", "http://data"),
        }
        asked = windows(Snapshot(**bare), current(Snapshot(**bare)))
        if not asked:
            return Snapshot(**bare)
        if not self.prometheus:
            return Snapshot(**bare, evidence=Evidence(unavailable="gone"))
        known = {asked[0].revision: self.seen("canary"), asked[1].revision: self.seen("stable")}
        return Snapshot(**bare, evidence=Evidence(known))

    def seen(self, role: str) -> ArmEvidence:
        n, total = int(self.played[role].n), self.played[role].total
        share = total / n if n else None
        mean, errors = (None, None) if share is None else (-100 + 500 * share, 1 - share)
        return ArmEvidence(n, mean, share, errors, seen_at=self.now)

    @property
    def table(self) -> RoutingTable:
        table = read(self.config_map).table
        assert table is not None
        return table

    def run(self, seconds: int) -> str:
        for _ in range(seconds):
            for _ in range(6):
                if self.look().requeue_after != 0.0:
                    break
            if self.status["phase"] in ("RolledBack", "Guarding"):
                break
            self.now += timedelta(seconds=1)
            weight = self.status.get("weight") or 0
            mine = int(self.source.binomial(40, weight / 100))
            for role, n in (("canary", mine), ("stable", 40 - mine)):
                fresh = Counts(n, int(self.source.binomial(n, self.means[role])))
                self.played[role] = self.played[role].plus(fresh)
        return str(self.status["phase"])

    @property
    def evidence(self) -> dict[str, Any]:
        return dict(self.status["evidence"][0])


def test_an_equal_canary_holds_until_it_is_proven_then_climbs() -> None:
    world = World(1, 0.9)
    assert world.run(900) == "Guarding"
    waiting = [said for said in world.verdicts if "undecided" in said]
    assert len(waiting) > 20
    assert waiting[0].startswith("holding at 10 %: success rate of the canary ")
    assert any(" more canary episodes needed, " in said and said.endswith("at the present rate") for said in waiting)
    assert not any("RolledBack" in said for said in world.verdicts)
    assert world.status.get("evidence") is None


@pytest.mark.parametrize(("metric", "noun"), [(SUCCESS, "success rate"), (RETURN, "return")])
def test_a_worse_canary_is_taken_back_with_p_and_bar_in_the_sentence(metric: dict[str, Any], noun: str) -> None:
    world = World(2, 0.7, metric)
    assert world.run(400) == "RolledBack"
    message = world.status["blockedRevision"]["message"]
    assert message.startswith(f"RolledBack at 10 %: {noun} of the canary ")
    assert " episodes; P(worse) 0.99" in message or " episodes; P(worse) > 0.9999" in message
    assert message.endswith("; bar 0.99")
    assert world.status.get("evidence") is None


def test_a_tolerated_drop_never_promotes_without_proof_and_a_drop_at_the_bar_does_not_pass() -> None:
    world = World(3, 0.85)
    assert world.run(500) in ("Progressing", "RolledBack")
    assert "step 1/4 passed" not in " ".join(world.verdicts)


def test_an_operator_that_forgets_everything_but_the_status_goes_on_where_it_was() -> None:
    world = World(4, 0.9)
    world.run(60)
    world.look()
    before = world.evidence
    world.look()
    assert world.evidence == before
    assert before["judged"][0] > 100
    assert save(load(save_of(world)), spec(world), 0.1) == save_of(world)


def test_nothing_moves_the_evidence_while_prometheus_is_away() -> None:
    world = World(5, 0.9)
    world.run(60)
    before = world.evidence
    world.prometheus = False
    world.run(60)
    assert (world.evidence["judged"], world.evidence["logWorse"]) == (before["judged"], before["logWorse"])
    assert "no evidence: gone" in world.status["verdict"]
    world.prometheus = True
    world.run(5)
    assert world.evidence["judged"][0] > before["judged"][0]


def test_what_is_proven_passes_no_step_at_a_look_without_stable() -> None:
    world = World(1, 0.9)
    while "undecided" not in world.status["verdict"] or world.evidence["chanceFine"] < 0.9:
        world.run(1)
    world.means["canary"] = 1.0
    proven = [item.model_copy(update={"log_fine": 6.0}) for item in save_of(world)]
    world.status["evidence"] = [item.to_kube() for item in proven]
    world.played["stable"] = Counts()
    world.look()
    assert world.status["verdict"].startswith("holding at 10 %: success: no number for stable")


def test_nan_is_neither_evidence_nor_a_figure_in_the_status() -> None:
    world = World(1, 0.9)
    world.run(40)
    before = world.status
    world.played["canary"] = Counts(500, float("nan"))
    world.look()
    assert world.evidence["judged"] == before["evidence"][0]["judged"]
    assert world.status["canary"]["successRate"] == before["canary"]["successRate"]
    assert "no number for the canary" in world.status["verdict"]


def test_another_tolerance_asks_another_question_and_starts_over() -> None:
    world = World(6, 0.9)
    world.run(60)
    world.spec["analysis"]["metrics"] = [{**SUCCESS, "maxDrop": 0.2}]
    world.look()
    assert world.evidence["claim"] == "success not worse by 0.2"
    assert world.evidence["judged"] == [0, 0, 0, 0]


def test_a_hard_bound_of_a_sequential_metric_does_not_wait_for_proof() -> None:
    world = World(7, 0.3, {**SUCCESS, "min": 0.5, "minEpisodes": 10})
    world.run(60)
    assert "success rate of the canary 0." in world.status["blockedRevision"]["message"]
    assert world.status["blockedRevision"]["message"].endswith("bar at least 0.5")


def test_two_metrics_share_the_budget_for_rollbacks() -> None:
    world = World(8, 0.6, SUCCESS, {"name": "errors", "type": "errors", "test": "sequential", "maxDrop": 0.05})
    assert world.run(300) == "RolledBack"
    assert "bar 0.995" in world.status["blockedRevision"]["message"]


def save_of(world: World) -> list[MetricEvidence]:
    return ModelDeploymentStatus.model_validate(world.status).evidence or []


def spec(world: World) -> Analysis:
    return ModelDeploymentSpec.model_validate(world.spec).analysis


def test_damaged_numbers_in_a_status_start_the_test_anew() -> None:
    world = World(9, 0.9)
    world.run(30)
    saved = save_of(world)
    for damage in ({"judged": [1.0]}, {"judged": [1.0, 5.0, 1.0, 1.0]}, {"log_fine": None}):
        assert load([saved[0].model_copy(update=damage)])[0].memory == Memory()


def test_a_promoted_arm_that_is_certainly_worse_than_the_old_one_was_is_a_breach() -> None:
    metric = MetricThreshold.model_validate(SUCCESS)
    analysis = Analysis(metrics=[metric])
    old = ArmEvidence(2000, None, 0.9)
    found = after_promotion(metric, ArmEvidence(400, None, 0.6), old, analysis)
    assert found is not None
    assert found.verdict is Verdict.BREACH
    assert "0.6 vs 0.9 of the old arm over 400 episodes; certainly worse by more than 0.05" in found.sentence
    for quiet in (ArmEvidence(400, None, 0.88), ArmEvidence(5, None, 0.2), ArmEvidence(), None):
        assert after_promotion(metric, quiet, old, analysis) is None


def test_a_return_outside_its_range_is_no_evidence() -> None:
    metric = MetricThreshold.model_validate(RETURN)
    analysis = Analysis(metrics=[metric])
    begun = (Trial("return", "return not worse by 50 of -100..400", Memory(Pair())),)
    beyond = Evidence({"c": ArmEvidence(50, 900.0), "s": ArmEvidence(500, 300.0)})
    assert looked(analysis, begun, beyond, "c", "s", concurrent=True) == begun
    assert counts(metric, ArmEvidence(10, 150.0)) == Counts(10, 5)
    assert counts(metric, ArmEvidence(10, None)) is None


def test_a_metric_the_api_server_would_refuse_holds_with_its_name() -> None:
    metric = MetricThreshold.model_validate({"name": "mine", "type": "return", "test": "sequential", "maxDrop": 1})
    found = weigh(metric, Trial("mine", "", Memory()), Analysis(metrics=[metric]), 0.1, 1.0)
    assert found.verdict is Verdict.HOLD
    assert "mine needs a maxDrop within its range" in found.sentence
