"""A step that waits for a person: for how long, and what then."""

import pytest

from learnloop_api import names
from testing.simulation.rollout_cluster import BETTER, STEPS, Cluster, uri


def paused(within: str | None = "10m", otherwise: str = "rollBack") -> Cluster:
    """A canary at 10 % whose step waits for a person."""
    first = {**STEPS[0], "pause": True}
    if within is not None:
        first["approval"] = {"within": within, "otherwise": otherwise}
    cluster = Cluster([first, *STEPS[1:]])
    cluster.run(10)
    cluster.wish(1, BETTER)
    while cluster.status["phase"] != "Paused":
        cluster.run(1)
    return cluster


def stalled(cluster: Cluster) -> dict:
    return next(item for item in cluster.status["conditions"] if item["type"] == "Stalled")


def awaited(cluster: Cluster) -> tuple:
    """The announcement to the data plane, and its identity."""
    announcements = cluster.reconcile().announcements
    (announcement,) = [item for item in announcements if item.call.path == "/api/v1/models/md/awaited-approval"]
    return (announcement.call.body if announcement.call.method == "PUT" else None), announcement.identity


def test_receivers_can_be_told_of_what_waits_once_and_that_nobody_is_waited_for() -> None:
    cluster = paused()
    first, identity = awaited(cluster)
    assert (first["revision"], first["step"]) == (cluster.status["canary"]["revision"], 1)
    assert (first["otherwise"], first["until"] > first["since"]) == ("roll_back", True)
    cluster.run(60)
    assert awaited(cluster)[1] == identity
    cluster.annotations[names.ANNOTATION_APPROVE] = f"{first['revision']}/1 at x by alice"
    cluster.run(5)
    assert awaited(cluster) == (None, "none awaited")


def test_a_rollout_that_asks_nobody_tells_nothing_of_it() -> None:
    cluster = Cluster()
    cluster.run(10)
    assert not any("awaited" in item.call.path for item in cluster.reconcile().announcements)


def test_without_a_limit_a_pause_waits_for_ever() -> None:
    cluster = paused(None)
    cluster.run(700)
    assert (cluster.status["phase"], cluster.weight(uri(1))) == ("Paused", 10)


def test_nobody_approves_in_time_and_the_canary_is_rolled_back() -> None:
    cluster = paused()
    verdict = cluster.status["verdict"]
    assert "without it by 2026-01-01T" in verdict
    cluster.run(300)
    assert cluster.status["verdict"].rpartition("; ")[2] == verdict.rpartition("; ")[2], "the moment stays the same"
    cluster.run(320)
    block = cluster.status["blockedRevision"]
    assert (block["reason"], cluster.weight(uri(1))) == ("ApprovalOverdue", 0)
    assert block["message"] == "RolledBack at 10 %: no approval within 10m"


def test_or_it_holds_on_stalls_and_warns_once_and_an_approval_still_lets_it_on() -> None:
    cluster = paused(otherwise="hold")
    cluster.run(900)
    assert (cluster.status["phase"], cluster.weight(uri(1))) == ("Paused", 10)
    assert (stalled(cluster)["status"], stalled(cluster)["reason"]) == ("True", "ApprovalOverdue")
    assert cluster.events.count("ApprovalOverdue") == 1
    cluster.annotations[names.ANNOTATION_APPROVE] = f"{cluster.status['canary']['revision']}/1 at x by alice"
    cluster.run(5)
    assert cluster.weight(uri(1)) == 25


@pytest.mark.parametrize("within", ["20s", "2m"])
def test_what_a_person_says_begins_the_time_anew(within: str) -> None:
    cluster = paused(within)
    revision = cluster.status["canary"]["revision"]
    cluster.annotations[names.ANNOTATION_PAUSE] = f"{revision} at 1 by alice"
    cluster.run(200)
    assert cluster.status["phase"] == "Paused", "a hold waits for no approval"
    cluster.annotations[names.ANNOTATION_RESUME] = f"{revision} at 2 by alice"
    cluster.run(10)
    assert (cluster.status["phase"], "blockedRevision" in cluster.status) == ("Paused", False)
    cluster.run(200)
    assert cluster.status["blockedRevision"]["reason"] == "ApprovalOverdue"
