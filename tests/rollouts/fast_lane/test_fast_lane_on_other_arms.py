"""The fast lane on arms of an experiment and on a canary in shadow: the same promises as for a canary with episodes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop_operator.rollout.children.routing_table import read
from learnloop_operator.rollout.decide import current, decide
from learnloop_operator.rollout.judging.fast_lane_breaches import subjects
from testing.simulation.fast_lane_cluster import LanedExperiment, LanedShadow
from testing.simulation.rollout_cluster import BETTER, uri


@pytest.fixture
def racing() -> LanedExperiment:
    """Three arms of much the same quality, a while after their first episode."""
    cluster = LanedExperiment((0.6, 0.55, 0.62), maxEpisodes=1_000_000)
    cluster.per_second = 8
    cluster.start()
    while len(cluster.weights()) < 3:
        cluster.run(1)
    cluster.run(8)
    return cluster


@pytest.fixture
def shadowed() -> LanedShadow:
    """A canary in a shadow step that has just begun."""
    cluster = LanedShadow({"minRequests": 1000, "minAgreement": 0.6, "maxErrorRate": 0.02, "maxLatencySeconds": 0.02})
    cluster.run(10)
    cluster.wish(1, BETTER)
    while not cluster.copies:
        cluster.run(1)
    cluster.run(2)
    return cluster


def seconds_until(gone: Any, cluster: Any, most: int) -> int:
    for seconds in range(most):
        if gone():
            return seconds
        cluster.run(1)
    raise AssertionError(f"still there after {most} s: {cluster.status['verdict']}")


def test_every_challenger_is_read_and_stable_is_not(racing: LanedExperiment) -> None:
    asked = subjects(racing.snapshot(), current(racing.snapshot()))
    assert {racing.model_of(item.revision): item.weight for item in asked} == {uri(1): 25, uri(2): 25}


def test_a_failing_arm_is_withdrawn_within_seconds_although_prometheus_is_gone(racing: LanedExperiment) -> None:
    racing.prometheus = False
    racing.fail(uri(1))
    assert seconds_until(lambda: uri(1) not in racing.weights(), racing, 20) <= 5
    assert racing.weights() == {uri(0): 75, uri(2): 25}, "its share went to stable, the other arm plays on"
    assert racing.arm("a")["standing"] == "withdrawn"
    assert "requests to a failed; bar at most 0.05; read from its own pods" in racing.arm("a")["message"]
    assert "ArmWithdrawn" in racing.events
    assert racing.status["experiment"]["phase"] == "Running"


def test_a_withdrawal_is_on_record_before_the_arm_loses_its_share(racing: LanedExperiment) -> None:
    racing.fail(uri(2))
    for _ in range(20):
        racing.tick(1)
        plan = decide(racing.snapshot())
        table = read(plan.apply[0]).table
        assert table is not None
        if len(table.arms) == 2:
            break
    assert len(table.arms) == 2
    assert plan.status_first


def test_a_winner_that_waits_for_a_person_is_withdrawn_when_it_begins_to_fail() -> None:
    cluster = LanedExperiment((0.4, 0.95), (40,), onWinner="wait").start()
    while cluster.status.get("experiment", {}).get("phase") != "Won":
        cluster.run(1)
    cluster.fail(uri(1))
    assert seconds_until(lambda: uri(1) not in cluster.weights(), cluster, 20) <= 5
    assert cluster.weights() == {uri(0): 100}
    assert cluster.status["experiment"]["phase"] == "Finished"
    assert "winner" not in cluster.status["experiment"]


FATES = st.sampled_from(["run", "restart pods", "restart operator", "die", "lane", "prometheus"])


@given(seed=st.integers(0, 10**6), fates=st.lists(FATES, max_size=8))
@settings(max_examples=6)
def test_whatever_happens_to_pods_lane_and_operator_no_good_arm_is_withdrawn(seed: int, fates: list[str]) -> None:
    cluster = LanedExperiment((0.6, 0.6, 0.6), maxEpisodes=1_000_000)
    cluster.random.seed(seed)
    cluster.start()
    cluster.run(8)
    for fate in fates:
        if fate == "restart pods":
            cluster.restart_pods(cluster.arm("a")["revision"])
        elif fate == "restart operator":
            cluster.restart_operator()
        elif fate == "die":
            cluster.reconcile(crash_after=1)
            cluster.restart_operator()
        elif fate == "lane":
            cluster.lane_up = not cluster.lane_up
        elif fate == "prometheus":
            cluster.prometheus = not cluster.prometheus
        cluster.run(4)
    assert not [arm for arm in cluster.status["experiment"]["arms"] if "own pods" in arm.get("message", "")]


@pytest.mark.parametrize(
    ("trouble", "seconds", "said"),
    [
        ({"failing_copies": 0.6}, 6, "copies of requests to the canary failed; bar at most 0.02; read from its own"),
        ({"slow": 0.8}, 20, "copies of requests to the canary took longer than 0.02 s; bar at most 0.11"),
        ({"agreement": 0.05}, 6, "the canary agrees with stable on "),
    ],
)
def test_a_gross_breach_in_shadow_ends_the_copies_within_seconds_although_prometheus_is_gone(
    shadowed: LanedShadow, trouble: dict[str, float], seconds: int, said: str
) -> None:
    shadowed.prometheus = False
    shadowed.ever_failing.add(uri(1))
    for name, value in trouble.items():
        setattr(shadowed, name, value)
    assert seconds_until(lambda: shadowed.status.get("blockedRevision"), shadowed, 20) <= seconds
    pin = shadowed.status["blockedRevision"]
    assert pin["reason"] == "GrossBreach"
    assert pin["message"].startswith("RolledBack before its first episode: ")
    assert said in pin["message"]
    table = read(shadowed.config_map).table
    assert table is not None
    assert table.mirror is None


def test_good_copies_take_nothing_back_and_prometheus_still_has_to_pass_the_step(shadowed: LanedShadow) -> None:
    shadowed.prometheus = False
    shadowed.run(60)
    assert "blockedRevision" not in shadowed.status
    assert shadowed.status["weight"] == 0
    shadowed.prometheus = True
    assert shadowed.settle() == "Healthy"
    assert shadowed.status["stable"]["uri"] == uri(1)


def test_the_bounds_of_all_arms_share_one_budget() -> None:
    one, three = LanedExperiment((0.5, 0.5), (10,)).start(), LanedExperiment((0.5,) * 4, (10, 10, 10)).start()
    bars = []
    for cluster in (one, three):
        cluster.run(12)
        bars.append(subjects(cluster.snapshot(), current(cluster.snapshot()))[0].questions.bar)
    assert bars[1] - bars[0] == pytest.approx(1.0986, abs=1e-3), "log 3: each of three arms gets a third"
