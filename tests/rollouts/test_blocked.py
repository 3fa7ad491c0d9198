"""A rolled-back model stays away: under another revision, behind another one, at another address, as a guest."""

import pytest

from learnloop_api import names
from learnloop_api.kinds.model_deployment import BlockedRevision
from learnloop_operator.rollout.state.rollout_state import MOST, with_block
from testing.simulation.experiment_cluster import ExperimentCluster
from testing.simulation.rollout_cluster import BAD, BETTER, MODES, Cluster, digest, uri


@pytest.fixture(params=MODES)
def blocked(request: pytest.FixtureRequest) -> Cluster:
    """A cluster whose model 1 was rolled back."""
    cluster = Cluster().by(request.param)
    cluster.run(10)
    cluster.wish(1, BAD)
    assert cluster.settle() == "RolledBack"
    return cluster


def revisions(cluster: Cluster) -> list[str]:
    return [block["revision"] for block in cluster.status.get("blockedRevisions", ())]


def retry(cluster: Cluster, what: str) -> None:
    cluster.annotations[names.ANNOTATION_RETRY] = f"{what} at {cluster.now.isoformat()}"


def test_a_blocked_model_with_other_pods_stays_blocked(blocked: Cluster) -> None:
    gone = blocked.status["blockedRevision"]["revision"]
    blocked.spec["serving"] = {"pod": {"annotations": {"note": "x"}}}
    blocked.run(120)
    assert (blocked.status["phase"], blocked.events.count("CanaryCreated")) == ("RolledBack", 1)
    assert blocked.status["verdict"].endswith(" serves until a new model, or `kubectl learnloop retry md`")
    assert blocked.shares() == {blocked.status["stable"]["revision"]: 100}
    assert revisions(blocked) == [gone]


def test_a_model_that_was_blocked_before_the_last_one_stays_blocked(blocked: Cluster) -> None:
    blocked.wish(2, BAD)
    assert blocked.settle() == "RolledBack"
    blocked.wish(1, BAD)
    blocked.run(120)
    assert (blocked.status["phase"], blocked.status["blockedRevision"]["uri"]) == ("RolledBack", uri(1))
    assert (len(revisions(blocked)), blocked.events.count("CanaryCreated")) == (2, 2)


def test_the_same_file_at_another_address_stays_blocked(blocked: Cluster) -> None:
    blocked.quality[uri(9)] = BAD
    blocked.spec["model"] = {"uri": uri(9), "sha256": digest(1)}
    blocked.run(60)
    assert (blocked.status["phase"], blocked.events.count("CanaryCreated")) == ("RolledBack", 1)
    assert "with other pods or at another address" in blocked.status["verdict"]


def test_a_retry_unblocks_exactly_the_revision_that_it_names(blocked: Cluster) -> None:
    blocked.wish(2, BAD)
    assert blocked.settle() == "RolledBack"
    first, second = revisions(blocked)
    retry(blocked, first)
    blocked.run(5)
    assert revisions(blocked) == [second]
    retry(blocked, "cccccccc")
    blocked.run(5)
    assert blocked.status["decisions"][-1]["message"] == f"cccccccc is not blocked: {second} is"
    blocked.wish(1, BETTER)
    assert blocked.settle() == "Healthy"


def test_a_retry_of_all_unblocks_all_and_one_that_names_nothing_what_is_in_the_way(blocked: Cluster) -> None:
    blocked.wish(2, BAD)
    assert blocked.settle() == "RolledBack"
    first, second = revisions(blocked)
    blocked.wish(1, BAD)
    blocked.run(5)
    retry(blocked, "please")
    blocked.run(1)
    assert revisions(blocked) == [second]
    assert blocked.settle() == "RolledBack"
    assert revisions(blocked) == [second, first]
    retry(blocked, "all")
    blocked.wish(0, BETTER)
    blocked.run(5)
    assert "blockedRevisions" not in blocked.status
    assert "blockedRevision" not in blocked.status


def test_other_pods_for_the_model_that_serves_are_tried_although_the_last_ones_were_bad() -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.spec["serving"] = {"pod": {"annotations": {"note": "bad"}}}
    cluster.run(5)
    cluster.annotations[names.ANNOTATION_ABORT] = cluster.status["canary"]["revision"]
    cluster.run(60)
    assert cluster.status["phase"] == "RolledBack"
    cluster.spec["serving"] = {"pod": {"annotations": {"note": "good"}}}
    assert cluster.settle() == "Healthy"
    assert revisions(cluster), "the bad pods are still on record"


def test_the_list_is_bounded_and_the_oldest_leaves() -> None:
    """F7: the first of 39 bad models got users again, for 32 were remembered."""
    blocks: tuple[BlockedRevision, ...] = ()
    for number in range(MOST + 2):
        named = {"revision": f"{number:08x}", "uri": uri(number % 9 + 1), "reason": "R", "message": "m" * 900}
        blocks = with_block(blocks, BlockedRevision.model_validate({**named, "at": "2026-01-31T12:00:00Z"}))
    assert [block.revision for block in blocks] == [f"{number:08x}" for number in range(2, MOST + 2)]
    assert MOST >= 256
    assert sum(len(block.message) for block in blocks) < 48_000, "an object in etcd has a megabyte"


def test_what_is_blocked_does_not_come_back_as_a_guest_of_an_experiment() -> None:
    cluster = ExperimentCluster((0.5, 0.5), (40,))
    cluster.run(10)
    cluster.spec["model"] = {"uri": uri(1), "sha256": digest(1)}
    cluster.run(5)
    cluster.annotations[names.ANNOTATION_ABORT] = cluster.status["canary"]["revision"]
    cluster.run(5)
    cluster.spec["model"] = {"uri": uri(0), "sha256": digest(0)}
    cluster.spec["experiment"] = cluster.experiment
    cluster.run(60)
    assert cluster.weights() == {uri(0): 100}
    assert "spec.experiment.arms[0]: a was rolled back (RolledBack" in cluster.status["verdict"]
    retry(cluster, cluster.status["blockedRevision"]["revision"])
    cluster.run(2)
    assert "ExperimentStarted" in cluster.events
