"""Gates: every verdict has numbers, and no episodes are no evidence."""

from hypothesis import given
from hypothesis import strategies as st
from training_world import proof, returns

from learnloop_api.kinds.training_job import Gates
from learnloop_operator.core.training.gates import evaluate

NUMBER = st.floats(-1e6, 1e6)


def test_each_set_gate_gives_one_verdict_with_its_numbers() -> None:
    gates = Gates(min_return=400, min_improvement=100, significant=True)
    verdicts = evaluate(gates, proof())
    assert [(verdict.name, verdict.passed) for verdict in verdicts] == [
        ("minReturn", True),
        ("minImprovement", True),
        ("significant", True),
    ]
    assert "480.0, must be at least 400 (100 episodes)" in verdicts[0].message
    assert "+458.0 against the baseline's 22.0" in verdicts[1].message


def test_gates_that_are_not_set_are_not_asked() -> None:
    assert evaluate(Gates(significant=False), proof()) == []


def test_a_model_no_better_than_the_baseline_is_not_significant() -> None:
    (verdict,) = evaluate(Gates(), proof(evaluation=returns(30.0, low=22.0), baseline=returns(22.0)))
    assert not verdict.passed


def test_without_held_out_episodes_every_gate_fails() -> None:
    none = proof(evaluation=returns(1e6, episodes=0))
    assert not any(verdict.passed for verdict in evaluate(Gates(min_return=0, min_improvement=0), none))


@given(mean=NUMBER, baseline=NUMBER, bar=NUMBER)
def test_a_passed_gate_always_means_what_it_says(mean: float, baseline: float, bar: float) -> None:
    gates = Gates(min_return=bar, min_improvement=bar)
    found = proof(evaluation=returns(mean), baseline=returns(baseline))
    passed = {verdict.name: verdict.passed for verdict in evaluate(gates, found)}
    assert passed["minReturn"] == (mean >= bar)
    assert passed["minImprovement"] == (mean - baseline >= bar)
    assert passed["significant"] == (mean - 5 > baseline)
