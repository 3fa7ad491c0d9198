"""Gates: every verdict has numbers, and a run without episodes has no evidence."""

import math

import pytest
from hypothesis import given, strategies as st

from learnloop_api.kinds.training.evaluation import SuiteGate, TrainingGates
from learnloop_api.wire.training import Cost, DimensionResult, Interval, OffPolicy, SuiteResult
from learnloop_operator.training.proof_gates import constraints, evaluate, flaw, suite_status
from testing.training.training_builders import after, condition, job, plan, proof, returns, run, situation, spec

NUMBER = st.floats(-1e6, 1e6)


def test_each_set_gate_gives_one_verdict_with_its_numbers() -> None:
    gates = TrainingGates(min_return=400, min_improvement=100, significant=True)
    verdicts = evaluate(gates, proof())
    assert [(verdict.name, verdict.passed) for verdict in verdicts] == [
        ("minReturn", True),
        ("minImprovement", True),
        ("significant", True),
    ]
    assert "480.0, must be at least 400 (100 episodes)" in verdicts[0].message
    assert "+458.0 against the baseline's 22.0" in verdicts[1].message


def test_a_constraint_that_is_broken_on_held_out_episodes_refuses_the_run() -> None:
    def cost(name: str, mean: float, maximum: float | None) -> Cost:
        interval = {"mean": mean, "ci_low": mean - 0.1, "ci_high": mean + 0.1}
        return Cost(name=name, maximum=maximum, episodes=100, baseline=3.5, **interval)

    held = [cost("collisions", 0.9, 1.0), cost("interventions", 7.0, None)]
    broken = [*held, cost("falls", 2.04, 2.0)]
    assert constraints(proof()) == []
    assert [(one.name, one.passed) for one in constraints(proof(costs=held))] == [("constraints", True)]
    snapshot = situation({"attempts": 1}, job=job(state="succeeded"), run=run(proof=proof(costs=broken)))
    made = plan(snapshot)
    sentence = "constraints: falls 2.04 [1.94, 2.14], must be at most 2 (100 episodes, baseline 3.50)"
    assert (made.status["phase"], condition(made, "Ready")["message"]) == ("Failed", sentence)
    assert [one["name"] for one in plan(after(snapshot, made)).status["costs"]] == [
        "collisions",
        "interventions",
        "falls",
    ]
    assert made.status["costs"][2] == {"name": "falls", "mean": 2.04, "maximum": 2.0}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hyperparameters": {"lagrangianLearningRate": 0.1}}, "has no cost of a constraint"),
        ({"safety": {"constraints": [{"name": "never", "forbid": [1]}], "fallback": [0]}}, "does not count"),
    ],
)
def test_a_proof_without_the_cost_of_what_limits_the_run_proves_nothing(changes: dict, sentence: str) -> None:
    interval = {"maximum": None, "episodes": 9, "mean": 0, "ci_low": 0, "ci_high": 0, "baseline": 0}
    costs = [Cost(name="interventions", **interval), Cost(name="falls", **interval | {"maximum": 1})]
    for some, flawed in ((costs[:1] if "hyperparameters" in changes else costs[1:], True), (costs, False)):
        problem = flaw(situation({"attempts": 1}, spec=spec(**changes), job=job()), proof(costs=some))
        assert (problem is not None and sentence in problem[1]) == flawed


def test_a_model_no_better_than_the_baseline_is_not_significant() -> None:
    (verdict,) = evaluate(TrainingGates(), proof(evaluation=returns(30.0, low=22.0), baseline=returns(22.0)))
    assert not verdict.passed


def test_without_held_out_episodes_every_gate_fails() -> None:
    none = proof(evaluation=returns(1e6, episodes=0))
    assert not any(verdict.passed for verdict in evaluate(TrainingGates(min_return=0, min_improvement=0), none))


@given(mean=NUMBER, baseline=NUMBER, bar=NUMBER)
def test_a_passed_gate_always_means_what_it_says(mean: float, baseline: float, bar: float) -> None:
    gates = TrainingGates(min_return=bar, min_improvement=bar)
    manifest = proof(evaluation=returns(mean), baseline=returns(baseline))
    passed = {verdict.name: verdict.passed for verdict in evaluate(gates, manifest)}
    assert passed["minReturn"] == (mean >= bar)
    assert passed["minImprovement"] == (mean - baseline >= bar)
    assert passed["significant"] == (mean - baseline - math.hypot(10, 10) / 2 > 0)


@given(low=NUMBER)
def test_the_paired_difference_decides_where_the_proof_has_it(low: float) -> None:
    handed_in = proof(difference=Interval(value=max(low, 0), low=low, high=max(low, 0)))
    (verdict,) = evaluate(TrainingGates(), handed_in)
    assert verdict.passed == (low > 0)


def test_the_baselines_own_uncertainty_counts() -> None:
    shaky = returns(22.0).model_copy(update={"ci_low": -478.0, "ci_high": 522.0})
    (verdict,) = evaluate(TrainingGates(), proof(evaluation=returns(30.0), baseline=shaky))
    assert not verdict.passed


def test_few_episodes_cannot_be_significant_and_the_sentence_says_how_many_can() -> None:
    few = proof(evaluation=returns(480.0, episodes=5), baseline=returns(22.0, episodes=5))
    (verdict,) = evaluate(TrainingGates(), few)
    assert not verdict.passed
    assert verdict.message == "5 episodes show nothing at 95 %: create a new run with evaluation.episodes of at least 6"


def judged(verdict: bool = True, message: str = "") -> OffPolicy:
    return OffPolicy(discount=0.95, episodes=240, verdict=verdict, message=message)


def test_where_a_log_judges_the_lower_end_must_pass_every_bar() -> None:
    estimated = returns(480.0, low=300.0)
    gain = Interval(value=458.0, low=50.0, high=500.0)
    manifest = proof(evaluation=estimated, off_policy=judged(), difference=gain)
    passed = [one.passed for one in evaluate(TrainingGates(min_return=400, min_improvement=100), manifest)]
    assert passed == [False, False, True], "the means are above both bars"
    assert all(one.passed for one in evaluate(TrainingGates(min_return=300, min_improvement=50), manifest))


def test_no_verdict_passes_no_gate_and_says_why() -> None:
    silent = proof(off_policy=judged(verdict=False, message="log more episodes"))
    verdicts = evaluate(TrainingGates(min_return=-1e9, min_improvement=-1e9), silent)
    assert len(verdicts) == 3
    assert not any(one.passed for one in verdicts)
    assert {one.message for one in verdicts} == {"no verdict from 240 logged episodes: log more episodes"}


def suite(**improvement: Interval) -> SuiteResult:
    results = [
        DimensionResult(
            dimension=dimension,
            conditions=["noise 0.1"],
            episodes=64,
            iqm=Interval(value=400, low=390, high=410),
            improvement=chance,
        )
        for dimension, chance in improvement.items()
    ]
    missing = DimensionResult(dimension="coordination", message="CartPole-v1 has one agent")
    return SuiteResult(
        improvement=Interval(value=1, low=1, high=1), overall=0.8, results=[*results, missing], seconds=1
    )


@given(low=st.floats(0, 1), bar=st.floats(0, 1))
def test_a_dimension_passes_when_its_interval_begins_at_the_bar(low: float, bar: float) -> None:
    gates = TrainingGates(significant=False, suite=[SuiteGate(dimension="robustness", min_improvement=bar)])
    manifest = proof(suite=suite(robustness=Interval(value=max(low, 0.5), low=low, high=1)))
    (verdict,) = evaluate(gates, manifest)
    assert verdict.passed == (low >= bar)


def test_a_dimension_that_was_not_measured_fails_its_gate_with_the_reason() -> None:
    wanted = [SuiteGate(dimension="coordination", min_iqm=0), SuiteGate(dimension="adaptability", min_iqm=0)]
    verdicts = evaluate(TrainingGates(significant=False, suite=wanted), proof(suite=suite()))
    assert [verdict.passed for verdict in verdicts] == [False, False]
    assert verdicts[0].message == "not measured: CartPole-v1 has one agent"
    assert verdicts[1].message == "not measured: the proof does not have it"


def test_the_status_says_the_suite_in_sentences() -> None:
    code = suite_status(suite(robustness=Interval(value=0.9, low=0.8, high=1)))
    assert code["overall"] == 0.8
    assert code["dimensions"][0]["message"] == (
        "IQM 400.0 [390.0, 410.0], better with probability 0.90 [0.80, 1.00]; noise 0.1"
    )
    assert code["dimensions"][1] == {
        "dimension": "coordination",
        "measured": False,
        "message": "CartPole-v1 has one agent",
    }
