"""spec.decisionLimits: the parts of all servers make the whole, at every step of a rollout."""

import pytest

from learnloop_operator.rollout.children.routing import read
from testing.simulation.rollout_cluster import BETTER, Cluster

from .test_orders import until


def parts(cluster: Cluster) -> dict[str, float]:
    """Of one server of each arm, by role."""
    table = read(cluster.config_map).table
    assert table.limits is not None
    return {arm.role: arm.share or 0.0 for arm in table.arms}


@pytest.mark.parametrize("mode", ["service", "gateway"])
def test_each_server_gets_its_part_by_weight_and_the_parts_make_one(mode: str) -> None:
    cluster = Cluster().by(mode)
    cluster.spec["decisionLimits"] = {"perSecond": 100}
    cluster.spec["serving"] = {"replicas": 4}
    cluster.run(10)
    assert parts(cluster) == {"stable": 0.25}
    cluster.wish(1, BETTER)
    until(cluster, 10)
    assert parts(cluster) == {"stable": 0.225, "canary": 0.1}, "four servers of 90 %, one of 10 %"
    assert cluster.settle() == "Healthy"
    cluster.run(60)
    del cluster.spec["decisionLimits"]
    cluster.reconcile()
    table = read(cluster.config_map).table
    assert table.limits is None
    assert [arm.share for arm in table.arms] == [None] * len(table.arms)
