"""Rollouts judged by sequential tests, through the whole of `decide`, on a simulated cluster."""

import pytest

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.kinds.rollouts.analysis import Analysis, MetricEvidence, MetricThreshold
from learnloop_operator.rollout.checks.against_stable import (
    Comparison,
    EpisodeRate,
    compared,
    load_comparisons,
    save_comparisons,
    weigh,
)
from learnloop_operator.rollout.checks.metric_types import PLAIN, type_of
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence, Verdict
from learnloop_operator.statistics.canary_against_stable import LookMemory, Pair
from learnloop_operator.statistics.e_values import Counts
from testing.simulation.two_arm_rig import RETURN, SUCCESS, Rig


def test_an_equal_canary_holds_until_it_is_proven_then_climbs() -> None:
    rig = Rig(1, 0.9)
    assert rig.run(900) == "Guarding"
    waiting = [text for text in rig.verdicts if "undecided" in text]
    assert len(waiting) > 20
    assert waiting[0].startswith("holding at 10 %: success rate of the canary ")
    assert any(" more canary episodes needed, " in text and text.endswith("at the present rate") for text in waiting)
    assert not any("RolledBack" in text for text in rig.verdicts)
    assert rig.status.get("evidence") is None


@pytest.mark.parametrize(("metric", "noun"), [(SUCCESS, "success rate"), (RETURN, "return")])
def test_a_worse_canary_is_rolled_back_with_p_and_bar_in_the_sentence(metric: dict, noun: str) -> None:
    rig = Rig(2, 0.7, metric)
    assert rig.run(400) == "RolledBack"
    message = rig.status["blockedRevision"]["message"]
    assert message.startswith(f"RolledBack at 10 %: {noun} of the canary ")
    assert " episodes; P(worse) 0.99" in message or " episodes; P(worse) > 0.9999" in message
    assert message.endswith("; bar 0.99")
    assert rig.status.get("evidence") is None


def test_a_tolerated_drop_never_promotes_without_proof_and_a_drop_at_the_bar_does_not_pass() -> None:
    rig = Rig(3, 0.85)
    assert rig.run(500) in ("Progressing", "RolledBack")
    assert "step 1/4 passed" not in " ".join(rig.verdicts)


def test_an_operator_that_forgets_everything_but_the_status_goes_on_where_it_was() -> None:
    rig = Rig(4, 0.9)
    rig.run(60)
    rig.look()
    before = rig.evidence
    rig.look()
    assert rig.evidence == before
    assert before["judged"][0] > 100
    pace = EpisodeRate(rig.now, 0.1, 0.0)
    again = save_comparisons(load_comparisons(save_of(rig)), spec(rig), pace) or []
    assert [item.model_copy(update={"estimated_at": None}) for item in save_of(rig)] == again


def test_nothing_moves_the_evidence_while_prometheus_is_away() -> None:
    rig = Rig(5, 0.9)
    rig.run(60)
    before = rig.evidence
    rig.prometheus = False
    rig.run(60)
    assert (rig.evidence["judged"], rig.evidence["logWorse"]) == (before["judged"], before["logWorse"])
    assert "no evidence: gone" in rig.status["verdict"]
    rig.prometheus = True
    rig.run(5)
    assert rig.evidence["judged"][0] > before["judged"][0]


def test_what_is_proven_passes_no_step_at_a_look_without_stable() -> None:
    rig = Rig(1, 0.9)
    while "undecided" not in rig.status["verdict"] or rig.evidence["chanceFine"] < 0.9:
        rig.run(1)
    rig.means["canary"] = 1.0
    proven = [item.model_copy(update={"log_fine": 6.0}) for item in save_of(rig)]
    rig.status["evidence"] = [item.to_kube() for item in proven]
    rig.played["stable"] = Counts()
    rig.look()
    assert rig.status["verdict"].startswith("holding at 10 %: success: no number for stable")


def test_nan_is_neither_evidence_nor_a_figure_in_the_status() -> None:
    rig = Rig(1, 0.9)
    rig.run(40)
    before = rig.status
    rig.played["canary"] = Counts(500, float("nan"))
    rig.look()
    assert rig.evidence["judged"] == before["evidence"][0]["judged"]
    assert rig.status["canary"]["successRate"] == before["canary"]["successRate"]
    assert "no number for the canary" in rig.status["verdict"]


def test_another_tolerance_asks_another_question_and_starts_over() -> None:
    rig = Rig(6, 0.9)
    rig.run(60)
    rig.spec["analysis"]["metrics"] = [{**SUCCESS, "maxDrop": 0.2}]
    rig.look()
    assert rig.evidence["claim"] == "success not worse by 0.2"
    assert rig.evidence["judged"] == [0, 0, 0, 0]


def test_a_bound_of_a_sequential_metric_speaks_before_the_test_does() -> None:
    rig = Rig(7, 0.3, {**SUCCESS, "min": 0.5, "minEpisodes": 10})
    rig.run(60)
    assert "success rate of the canary 0." in rig.status["blockedRevision"]["message"]
    assert rig.status["blockedRevision"]["message"].endswith("(confidence 0.998333)")


def test_two_metrics_share_the_budget_for_rollbacks() -> None:
    rig = Rig(8, 0.6, SUCCESS, {"name": "errors", "type": "errors", "test": "sequential", "maxDrop": 0.05})
    assert rig.run(300) == "RolledBack"
    assert "bar 0.995" in rig.status["blockedRevision"]["message"]


def save_of(rig: Rig) -> list[MetricEvidence]:
    return ModelDeploymentStatus.model_validate(rig.status).evidence or []


def spec(rig: Rig) -> Analysis:
    return ModelDeploymentSpec.model_validate(rig.spec).analysis


def test_damaged_numbers_in_a_status_start_the_test_anew() -> None:
    rig = Rig(9, 0.9)
    rig.run(30)
    saved = save_of(rig)
    for damage in ({"judged": [1.0]}, {"judged": [1.0, 5.0, 1.0, 1.0]}, {"log_fine": None}):
        assert load_comparisons([saved[0].model_copy(update=damage)])[0].memory == LookMemory()


def test_a_return_outside_its_range_is_no_evidence() -> None:
    metric = MetricThreshold.model_validate(RETURN)
    analysis = Analysis(metrics=[metric])
    begun = (Comparison("return", "return not worse by 50 of -100..400", LookMemory(Pair())),)
    beyond = Evidence({"c": ArmEvidence(50, 900.0), "s": ArmEvidence(500, 300.0)})
    assert compared(analysis, begun, beyond, "c", "s", concurrent=True) == begun
    assert type_of(metric).outcomes(metric, ArmEvidence(10, 150.0), PLAIN) == Counts(10, 5)
    assert type_of(metric).outcomes(metric, ArmEvidence(10, None), PLAIN) is None


def test_a_metric_the_api_server_would_refuse_holds_with_its_name() -> None:
    metric = MetricThreshold.model_validate({"name": "mine", "type": "return", "test": "sequential", "maxDrop": 1})
    verdict = weigh(metric, Comparison("mine", "", LookMemory()), Analysis(metrics=[metric]), 0.1, 1.0)
    assert verdict.verdict is Verdict.HOLD
    assert "mine needs a maxDrop within its range" in verdict.sentence
