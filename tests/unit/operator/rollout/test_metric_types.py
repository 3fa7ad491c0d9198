"""What each type of metric claims: latency and queries as rates, drift, and dry runs that only report."""

from math import inf
from typing import Any

import pytest

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.prometheus.queries import Arms, returns_query
from learnloop_operator.rollout.checks.return_drift import drift
from learnloop_operator.rollout.checks.thresholds import check
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence, Drift, Verdict
from learnloop_operator.rollout.metrics.metric_type import Measure
from learnloop_operator.rollout.metrics.registry import type_of
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.latency import quantile_of
from testing.simulation.two_arm_world import SUCCESS, World

LATENCY = {"name": "slow", "type": "latency", "quantile": 0.9, "test": "sequential", "maxDrop": 0.05}
PROMQL = {
    "name": "own",
    "type": "promql",
    "test": "sequential",
    "maxDrop": 0.05,
    "query": 'sum(increase(good{r="$revision"}[$window]))',
    "totalQuery": 'sum(increase(all{r="$revision"}[$window]))',
}
DRIFT = MetricThreshold.model_validate({"name": "drift", "type": "drift", "max": 0.2, "minEpisodes": 50})


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        (LATENCY, "share of requests within 0.005 s, stable's 90th percentile, of the canary 0."),
        (PROMQL, "own of the canary 0."),
    ],
)
def test_a_canary_with_more_bad_events_is_rolled_back(metric: dict[str, Any], said: str) -> None:
    world = World(2, 0.7, metric, stable=0.93)
    assert world.run(400) == "RolledBack"
    message = world.status["blockedRevision"]["message"]
    assert message.startswith(f"RolledBack at 10 %: {said}")
    assert " over the events of " in message
    assert message.endswith("; bar 0.99")


@pytest.mark.parametrize("metric", [LATENCY, PROMQL])
def test_a_canary_with_as_many_bad_events_is_promoted(metric: dict[str, Any]) -> None:
    world = World(1, 0.93, metric, stable=0.93)
    assert world.run(900) == "Guarding"


def test_the_bound_and_the_block_are_fixed_before_the_comparison_and_kept_in_the_status() -> None:
    world = World(1, 0.93, LATENCY, stable=0.93)
    while not (world.status.get("evidence") or [{}])[0].get("boundSeconds"):
        world.run(1)
    assert world.evidence["judged"] == [0, 0, 0, 0]
    assert (world.evidence["boundSeconds"], world.evidence["block"]) == (0.005, 10.0)
    world.means["stable"] = 0.9
    world.run(20)
    assert (world.evidence["boundSeconds"], world.evidence["block"]) == (0.005, 10.0)
    assert world.evidence["judged"][0] > 20


def test_ten_requests_of_an_episode_count_as_one_outcome() -> None:
    metric = MetricThreshold.model_validate(LATENCY)
    stable = ArmEvidence(100, latency={0.005: 930.0, 0.1: 1000.0, inf: 1000.0})
    kind = type_of(metric)
    fixed = kind.measure(metric, stable)
    assert fixed == Measure(0.005, 10.0)
    assert kind.outcomes(metric, stable, fixed) == Counts(100.0, 93.0)
    assert kind.measure(metric, ArmEvidence(100)) is None
    assert kind.measure(metric, ArmEvidence(0, latency=stable.latency)) is None
    assert kind.outcomes(metric, ArmEvidence(100, latency={0.2: 1.0, inf: 1.0}), fixed) is None


def test_a_quantile_is_interpolated_within_its_bucket() -> None:
    seen = {0.01: 50.0, 0.02: 100.0, 0.05: 100.0, inf: 110.0}
    assert quantile_of(seen, 0.5) == pytest.approx(0.011)
    assert quantile_of(seen, 0.99) == 0.05
    assert quantile_of({}, 0.5) is None
    threshold = MetricThreshold.model_validate({"name": "l", "type": "latency", "quantile": 0.5, "max": 0.01})
    found = check(threshold, ArmEvidence(9, latency=seen), None, 0.01)
    assert found.verdict is Verdict.HOLD, "60 of 110 requests above their median is what chance does"
    assert found.sentence == (
        "50th percentile latency of the canary 0.011 over 9 episodes; bar at most 0.01, undecided: "
        "certainly 9.1% of its requests are slower, 50.0% allowed (confidence 0.99)"
    )


def test_both_queries_of_a_rate_count_since_the_rollout_began() -> None:
    metric = MetricThreshold.model_validate(PROMQL)
    found = type_of(metric).queries(metric, "ns", "aaaaaaaa", 90)
    assert found == ('sum(increase(good{r="aaaaaaaa"}[90s]))', 'sum(increase(all{r="aaaaaaaa"}[90s]))')


def returns(before: tuple[float, float], now: tuple[float, float], seen: Any = None) -> ArmEvidence:
    """Episodes that returned at most 10, and all of them, before this step and in it."""
    histograms = ({0.0: 0.0, 10.0: low, inf: n} for low, n in (before, now))
    return ArmEvidence(int(before[1] + now[1]), drift=Drift(*histograms), seen_at=seen)


def test_an_arm_that_returns_less_than_in_its_own_earlier_steps_has_drifted() -> None:
    found = drift(DRIFT, returns((20, 400), (240, 400)), returns((40, 800), (48, 800)), 0.01, "the canary")
    assert found.verdict is Verdict.BREACH
    assert found.sentence == (
        "drift: returns of the canary at or below 10 went from 5% of its episodes to 60%, of stable's by 1% "
        "over 400 episodes; certainly more than 0.2 (bar 0.99)"
    )


@pytest.mark.parametrize(
    ("arm", "stable", "verdict", "said"),
    [
        (returns((20, 400), (20, 400)), returns((40, 800), (40, 800)), Verdict.PASS, "not certainly more than 0.2"),
        (returns((240, 400), (20, 400)), returns((40, 800), (40, 800)), Verdict.PASS, "not certainly"),
        (returns((20, 400), (240, 400)), returns((40, 800), (440, 800)), Verdict.PASS, "not certainly"),
        (returns((20, 400), (240, 400)), None, Verdict.BREACH, "certainly more than 0.2"),
        (returns((3, 60), (30, 60)), returns((4, 80), (4, 80)), Verdict.PASS, "not certainly"),
        (returns((20, 400), (10, 20)), None, Verdict.HOLD, "20 of 50 episodes needed in this step"),
        (returns((1, 20), (90, 400)), None, Verdict.HOLD, "20 of 50 episodes needed before this step"),
        (ArmEvidence(9), None, Verdict.HOLD, "its pods do not count them yet"),
        (None, None, Verdict.HOLD, "not known"),
    ],
)
def test_better_returns_a_changed_world_and_few_episodes_are_no_drift(
    arm: ArmEvidence | None, stable: ArmEvidence | None, verdict: Verdict, said: str
) -> None:
    found = drift(DRIFT, arm, stable, 0.01, "the canary")
    assert found.verdict is verdict
    assert said in found.sentence


def test_drift_takes_a_canary_back_from_its_second_step_on() -> None:
    world = World(1, 0.9, {"name": "drift", "type": "drift", "max": 0.2, "minEpisodes": 50})
    arm = returns((20, 400), (240, 400)).drift
    assert arm is not None
    world.drifts = {"canary": arm}
    assert world.run(120) == "RolledBack"
    assert world.status["blockedRevision"]["message"].startswith("RolledBack at 25 %: drift: returns of the canary")


def test_the_returns_of_a_step_are_asked_for_apart_from_all_of_them() -> None:
    query = returns_query(Arms("ns", "md", ["aaaaaaaa"]), 90, 30)
    assert query.count("learnloop_episode_return_bucket") == 6
    assert "[90s]" in query
    assert "[30s]" in query


DRY = {"name": "dry", "type": "errors", "max": 0.01, "dryRun": True}
"""Every tenth episode ends in error, so this would roll any canary back."""


def test_a_dry_run_neither_holds_nor_rolls_back_and_says_once_that_it_would() -> None:
    world = World(1, 0.9, SUCCESS, DRY)
    assert world.run(900) == "Guarding"
    assert world.events[: world.events.index("Promoted")].count("DryRunBreach") == 1
    assert any(said.endswith("; dry run: dry would roll it back") for said in world.verdicts)
    assert "RolledBack" not in world.events


def test_a_dry_run_is_in_the_status_with_its_claim_and_its_verdict() -> None:
    world = World(1, 0.9, SUCCESS, DRY)
    world.run(40)
    assert world.status["evidence"][1] == {
        "name": "dry",
        "claim": "errors at most 0.01",
        "verdict": "worse",
        "dryRun": True,
    }


def test_a_dry_run_of_a_sequential_test_spends_nothing_of_the_budget() -> None:
    world = World(8, 0.6, SUCCESS, {**SUCCESS, "name": "dry", "maxDrop": 0.01, "dryRun": True})
    world.run(20)
    assert world.status["evidence"][1]["dryRun"] is True
    assert world.run(300) == "RolledBack"
    assert world.status["blockedRevision"]["message"].endswith("bar 0.99")


def test_a_dry_run_without_data_does_not_hold() -> None:
    silent = {"name": "dry", "type": "promql", "query": "nothing", "min": 1.0, "dryRun": True}
    world = World(1, 0.9, {"name": "success", "type": "success", "min": 0.1}, silent)
    assert world.run(400) == "Guarding"
