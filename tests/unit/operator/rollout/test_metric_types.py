"""The claims of each type of metric: latency and queries as rates."""

from math import inf
from typing import get_args

import pytest

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.rollout.checks.metric_types import METRIC_TYPES, Measure, type_of
from learnloop_operator.rollout.checks.thresholds import check
from learnloop_operator.rollout.evidence import ArmEvidence, Verdict
from learnloop_operator.statistics.e_values import Counts
from learnloop_operator.statistics.latency import quantile_of
from testing.simulation.two_arm_rig import Rig

LATENCY = {"name": "slow", "type": "latency", "quantile": 0.9, "test": "sequential", "maxDrop": 0.05}


def test_a_canary_with_more_slow_requests_is_rolled_back() -> None:
    rig = Rig(2, 0.7, LATENCY, stable=0.93)
    assert rig.run(400) == "RolledBack"
    message = rig.status["blockedRevision"]["message"]
    sentence = "share of requests within 0.005 s, stable's 90th percentile, of the canary 0."
    assert message.startswith(f"RolledBack at 10 %: {sentence}")
    assert " over the requests of " in message
    assert message.endswith("; bar 0.99")


def test_a_canary_with_as_many_slow_requests_is_promoted() -> None:
    assert Rig(1, 0.93, LATENCY, stable=0.93).run(900) == "Guarding"


def test_the_bound_and_the_block_are_fixed_before_the_comparison_and_kept_in_the_status() -> None:
    rig = Rig(1, 0.93, LATENCY, stable=0.93)
    while not (rig.status.get("evidence") or [{}])[0].get("boundSeconds"):
        rig.run(1)
    assert rig.evidence["judged"] == [0, 0, 0, 0]
    assert (rig.evidence["boundSeconds"], rig.evidence["block"]) == (0.005, 10.0)
    rig.means["stable"] = 0.9
    rig.run(20)
    assert (rig.evidence["boundSeconds"], rig.evidence["block"]) == (0.005, 10.0)
    assert rig.evidence["judged"][0] > 20


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
    buckets = {0.01: 50.0, 0.02: 100.0, 0.05: 100.0, inf: 110.0}
    assert quantile_of(buckets, 0.5) == pytest.approx(0.011)
    assert quantile_of(buckets, 0.99) == 0.05
    assert quantile_of({}, 0.5) is None
    threshold = MetricThreshold.model_validate({"name": "l", "type": "latency", "quantile": 0.5, "max": 0.01})
    result = check(threshold, ArmEvidence(9, latency=buckets), None, 0.01)
    assert result.verdict is Verdict.HOLD, "60 of 110 requests above their median is what chance does"
    assert result.sentence == (
        "50th percentile latency of the canary 0.011 over 9 episodes; bar at most 0.01, undecided: "
        "certainly 9.1% of its requests are slower, 50.0% allowed (confidence 0.99)"
    )


def test_every_type_that_the_api_server_accepts_is_registered_under_its_name() -> None:
    assert set(get_args(MetricThreshold.model_fields["type"].annotation)) == set(METRIC_TYPES)
    assert all(name == kind.name for name, kind in METRIC_TYPES.items())
