"""A stable arm without a pod refuses its users, and the model that mends it has nothing to be compared with."""

import pytest

from testing.simulation.gated_cluster import GatedCluster
from testing.simulation.rollout_cluster import BAD, BETTER, MODES, RANGE, Cluster, uri


class Refusing(Cluster):
    """An arm without pods plays nothing."""

    def _begin(self, revision: str) -> None:
        if revision not in self.broken:
            super()._begin(revision)


class RefusingGated(Refusing, GatedCluster):
    """Suites stand before each canary."""


def broken(cluster: Cluster) -> Cluster:
    """Stable's pod is gone, and no other one starts; another model is asked for."""
    cluster.run(10)
    assert cluster.status["phase"] == "Healthy"
    cluster.broken.add(cluster.status["stable"]["revision"])
    cluster.run(5)
    cluster.wish(1, BETTER)
    return cluster


@pytest.mark.parametrize("mode", MODES)
def test_a_model_that_mends_a_stable_arm_without_pods_serves_everybody_after_the_deadline(mode: str) -> None:
    cluster = broken(Refusing().by(mode))
    cluster.run(30)
    assert cluster.status["canary"]["uri"] == uri(1)
    stalled = next(item for item in cluster.status["conditions"] if item["type"] == "Stalled")
    assert stalled["status"] == "True"
    assert "has no ready pod" in cluster.status["verdict"]
    cluster.run(60)
    assert cluster.status["stable"]["uri"] == uri(1)
    assert cluster.weight(uri(1)) == 100
    assert "StableLost" in cluster.events
    cluster.run(60)
    assert cluster.status["phase"] == "Healthy"
    assert not any(item["status"] == "True" for item in cluster.status["conditions"] if item["type"] == "Stalled")


def test_a_stable_arm_that_comes_back_before_the_deadline_is_compared_as_ever() -> None:
    cluster = broken(Refusing())
    cluster.run(30)
    cluster.broken.clear()
    assert cluster.settle() == "Healthy"
    assert "StableLost" not in cluster.events
    assert len(cluster.promotions) == 1


def test_a_canary_that_breaks_a_check_replaces_nobody() -> None:
    cluster = Refusing()
    cluster.spec["analysis"]["metrics"] = [{"name": "return", "type": "return", "min": 290.0, "returnRange": RANGE}]
    broken(cluster).wish(1, BAD)
    cluster.run(90)
    assert cluster.status["stable"]["uri"] == uri(0)
    assert cluster.status["blockedRevision"]["uri"] == uri(1)


def test_a_model_that_has_not_passed_its_gates_replaces_nobody() -> None:
    cluster = RefusingGated()
    cluster.run(20)
    cluster.ends = {"refusal": "hang"}
    broken(cluster).run(120)
    assert cluster.status["stable"]["uri"] == uri(0)
