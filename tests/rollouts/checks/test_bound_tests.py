"""Bounds that may be looked at after every episode: a good arm keeps its place, a gross breach goes immediately."""

from math import inf, log

import numpy as np
import pytest

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricThreshold
from learnloop_operator.rollout.checks.error_budget import alpha_of_bound, bars_of, rollback_checks
from learnloop_operator.rollout.checks.thresholds import check
from learnloop_operator.rollout.evidence import ArmEvidence, Verdict
from testing.simulation.simultaneous_evidence import at_the_same_time

ALPHA = alpha_of_bound(Analysis())
ERRORS = Analysis().metrics[1]
"""Of what somebody gets who writes no analysis."""


def metric(**body) -> MetricThreshold:
    return MetricThreshold.model_validate({"name": "m", "minEpisodes": 1, **body})


def erring(n: int, errors: int) -> ArmEvidence:
    return ArmEvidence(n, error_rate=errors / n)


def episodes_until_breach(source: np.random.Generator, share: float) -> int:
    errors = 0
    for n in range(1, 400):
        errors += int(source.random() < share)
        if check(ERRORS, erring(n, errors), None, ALPHA).verdict is Verdict.BREACH:
            return n
    return 400


@pytest.mark.parametrize(("share", "median", "nearly_all"), [(1.0, 5, 5), (0.5, 10, 24)])
def test_a_gross_breach_of_the_default_bound_takes_a_handful_of_episodes(share, median, nearly_all):
    source = np.random.default_rng(1)
    needed = [episodes_until_breach(source, share) for _ in range(300)]
    assert np.quantile(needed, 0.5) <= median
    assert np.quantile(needed, 0.95) <= nearly_all


def test_an_arm_exactly_at_its_bound_is_not_rolled_back_by_looking_often() -> None:
    source, taken, polled = np.random.default_rng(2), 0, 0
    for _ in range(300):
        errors = np.cumsum(source.random(120) < 0.05)
        beyond = [(n, int(bad)) for n, bad in enumerate(errors, 1) if n >= 5 and bad > 0.05 * n]
        polled += bool(beyond)
        taken += any(check(ERRORS, erring(n, bad), None, ALPHA).verdict is Verdict.BREACH for n, bad in beyond)
    assert taken <= 3, "one in six hundred is allowed"
    assert polled >= 150, "the number as it stands crosses its bar sooner or later"


def test_what_lies_beyond_a_bound_without_proof_neither_passes_nor_goes_back() -> None:
    result = check(ERRORS, erring(10, 1), None, ALPHA)
    assert result.verdict is Verdict.HOLD
    assert result.sentence == (
        "error rate of the canary 0.1 over 10 episodes; bar at most 0.05, undecided: certainly at least "
        "1.55e-05 (confidence 0.998333)"
    )


BETTER_IS_MORE = [
    ({"type": "success", "min": 0.8}, lambda bad: ArmEvidence(400, success_rate=1 - bad)),
    ({"type": "success", "minRatio": 0.8}, lambda bad: ArmEvidence(400, success_rate=1 - bad)),
    ({"type": "errors", "maxRatio": 1.5}, lambda bad: ArmEvidence(400, error_rate=0.05 + bad)),
    (
        {"type": "return", "min": 200, "returnRange": {"lowest": 0, "highest": 500}},
        lambda bad: ArmEvidence(400, 300 - 291 * bad),
    ),
    (
        {"type": "return", "minRatio": 0.8, "returnRange": {"lowest": -500, "highest": 0}},
        lambda bad: ArmEvidence(400, -100 - 400 * bad),
    ),
    (
        {"type": "latency", "max": 0.01},
        lambda bad: ArmEvidence(400, latency={0.01: 4000 * (1 - bad), 1.0: 4000, inf: 4000.0}),
    ),
    (
        {"type": "latency", "quantile": 0.9, "maxRatio": 1.2},
        lambda bad: ArmEvidence(400, latency={0.01: 4000 * (1 - bad), 0.02: 4000 * (1 - bad), 1.0: 4000, inf: 4000.0}),
    ),
]


@pytest.mark.parametrize(("body", "arm"), BETTER_IS_MORE, ids=[str(body)[:60] for body, _ in BETTER_IS_MORE])
def test_every_counted_metric_tells_a_bad_arm_from_a_good_one(body, arm):
    threshold, stable = metric(**body), arm(0.0)
    assert check(threshold, stable, stable, ALPHA, at_the_same_time(threshold, stable, stable)).verdict is Verdict.PASS
    result = check(threshold, arm(0.7), stable, ALPHA, at_the_same_time(threshold, arm(0.7), stable))
    assert result.verdict is Verdict.BREACH
    assert "needed" in result.sentence or "confidence 0.99" in result.sentence


def test_a_query_that_counts_nothing_is_compared_as_it_stands() -> None:
    queue = metric(type="promql", query="queue", max=10)
    result = check(queue, ArmEvidence(9, custom={"m": 10.5}), None, ALPHA)
    assert result.verdict is Verdict.BREACH
    assert result.sentence.endswith("bar at most 10, compared directly")


def test_the_error_budget_is_split_over_rollback_checks_that_may_act() -> None:
    both = Analysis(
        metrics=[
            metric(name="a", type="success", test="sequential", maxDrop=0.1, min=0.5),
            metric(name="b", type="errors", max=0.05),
            metric(name="c", type="promql", query="queue", max=1),
        ]
    )
    assert rollback_checks(both) == 3
    assert bars_of(both).worse == pytest.approx(log(3 / 0.01))
    assert 3 * 3 * alpha_of_bound(both) == pytest.approx(0.01)
