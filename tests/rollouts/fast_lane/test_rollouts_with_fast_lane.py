"""Whole rollouts with a fast lane: it rolls back what fails and nothing else, whatever happens to pods and operator."""

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from learnloop_api import names
from testing.simulation.fast_lane_cluster import LanedCluster
from testing.simulation.rollout_cluster import BETTER, MODES, uri


@pytest.fixture
def rising() -> LanedCluster:
    """A better model at its first step, for seven seconds."""
    cluster = LanedCluster()
    cluster.run(10)
    cluster.rise(1, BETTER, 10)
    cluster.run(2)
    return cluster


def seconds_until_gone(cluster: LanedCluster, most: int) -> int:
    for seconds in range(most):
        if cluster.weight(uri(1)) == 0:
            return seconds
        cluster.run(1)
    raise AssertionError(f"still at {cluster.weight(uri(1))} % after {most} s: {cluster.status['verdict']}")


def test_a_failing_canary_is_gone_within_seconds_although_prometheus_is(rising: LanedCluster) -> None:
    rising.prometheus = False
    rising.fail(uri(1))
    assert seconds_until_gone(rising, 60) <= 15
    assert rising.status["blockedRevision"]["reason"] == "GrossBreach"


def test_a_promoted_model_that_begins_to_fail_is_swapped_back(rising: LanedCluster) -> None:
    while not rising.promotions:
        rising.run(1)
    rising.fail(uri(1))
    assert seconds_until_gone(rising, 20) <= 4
    assert rising.weight(uri(0)) == 100


def test_a_mended_model_that_is_tried_again_is_not_blamed_for_its_old_failures(rising: LanedCluster) -> None:
    rising.fail(uri(1))
    seconds_until_gone(rising, 60)
    rising.failing.clear()
    rising.ever_failing.clear()
    rising.annotations[names.ANNOTATION_RETRY] = "1"
    assert rising.settle() == "Healthy"
    assert rising.status["stable"]["uri"] == uri(1)


def test_without_a_lane_the_rollout_goes_on_and_says_so_with_one_write(rising: LanedCluster) -> None:
    rising.lane_up = False
    rising.run(60)
    statuses = {item["status"] for item in rising.status["conditions"] if item["type"] == "FastLane"}
    assert statuses <= {"False", "Unknown"}
    assert rising.settle() == "Healthy"
    assert rising.status["stable"]["uri"] == uri(1)


class Chaos(RuleBasedStateMachine):
    """Pods restart, models fail and recover, the lane and the operator come and go."""

    @initialize(mode=st.sampled_from(MODES))
    def begin(self, mode: str) -> None:
        self.cluster = LanedCluster().by(mode)
        self.models = 0

    @rule()
    def new_model(self) -> None:
        self.models += 1
        self.cluster.wish(self.models, BETTER)

    @rule(seconds=st.integers(1, 40))
    def run(self, seconds: int) -> None:
        self.cluster.run(seconds)

    @rule(seconds=st.integers(1, 20))
    def sleep(self, seconds: int) -> None:
        self.cluster.tick(seconds)

    @rule()
    def fail(self) -> None:
        if self.models:
            self.cluster.fail(uri(self.models))

    @rule()
    def recover(self) -> None:
        self.cluster.failing.clear()

    @rule(up=st.booleans())
    def lane(self, up: bool) -> None:
        self.cluster.lane_up = up

    @rule(up=st.booleans())
    def prometheus(self, up: bool) -> None:
        self.cluster.prometheus = up

    @precondition(lambda self: self.cluster.deployments)
    @rule(data=st.data())
    def restart_pods(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.cluster.deployments)))
        self.cluster.restart_pods(name.removeprefix("md-"))

    @rule()
    def restart_operator(self) -> None:
        self.cluster.restart_operator()

    @rule(writes=st.integers(0, 14))
    def die(self, writes: int) -> None:
        self.cluster.reconcile(crash_after=writes)
        self.cluster.restart_operator()

    @rule()
    def retry(self) -> None:
        self.cluster.annotations[names.ANNOTATION_RETRY] = str(self.cluster.now)

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            assert self.cluster.settle() in ("Healthy", "RolledBack"), self.cluster.status["verdict"]
            assert self.cluster.weight(self.cluster.status["stable"]["uri"]) == 100


TestChaos = Chaos.TestCase
TestChaos.settings = settings(max_examples=20, stateful_step_count=12, suppress_health_check=list(HealthCheck))
