"""The fast lane on arms of an experiment: the same promises as for a canary."""

import pytest
from hypothesis import given, settings, strategies as st

from learnloop_operator.rollout.children.routing import read
from learnloop_operator.rollout.decide_deployment import current, decide
from learnloop_operator.rollout.judging.watched_arms import watched_arms
from testing.simulation.fast_lane_cluster import LanedExperiment
from testing.simulation.rollout_cluster import uri


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


def seconds_until(gone, cluster, most: int) -> int:
    for seconds in range(most):
        if gone():
            return seconds
        cluster.run(1)
    raise AssertionError(f"still there after {most} s: {cluster.status['verdict']}")


def test_every_challenger_is_read_and_stable_is_not(racing: LanedExperiment) -> None:
    watched = watched_arms(racing.snapshot(), current(racing.snapshot()))
    assert {racing.model_of(item.revision): item.weight for item in watched} == {uri(1): 25, uri(2): 25}


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


def test_the_bounds_of_all_arms_share_one_budget() -> None:
    one, three = LanedExperiment((0.5, 0.5), (10,)).start(), LanedExperiment((0.5,) * 4, (10, 10, 10)).start()
    bars = []
    for cluster in (one, three):
        cluster.run(12)
        bars.append(watched_arms(cluster.snapshot(), current(cluster.snapshot()))[0].questions.bar)
    assert bars[1] - bars[0] == pytest.approx(1.0986, abs=1e-3), "log 3: each of three arms gets a third"
