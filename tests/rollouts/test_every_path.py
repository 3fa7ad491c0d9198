"""Every path through a rollout, walked to its end: no step passes without its evidence, and each path has an end."""

import pytest

from learnloop_operator.statistics.e_values import Counts
from testing.simulation.rollout_cluster import Cluster, uri
from testing.simulation.two_arm_rig import Rig
from testing.state_walk.rollout_walk import explore

from .test_orders import climbing, say

__all__ = ["climbing"]


@pytest.mark.parametrize("judged_by", ["sequential", "threshold"])
def test_no_path_passes_a_step_without_evidence_and_each_ends_where_everything_works(judged_by: str) -> None:
    walk = explore(judged_by, 1_000_000)
    assert walk.exhausted
    assert (walk.false_passes, walk.broken, walk.without_end) == ([], [], 0)


def test_counters_of_stable_that_start_over_at_100_percent_do_not_hold_a_proven_canary() -> None:
    """Stable receives no more episodes, so its counters stay at nothing."""
    rig = Rig(1, 0.9)
    while rig.status.get("weight") != 100:
        rig.run(1)
    rig.played["stable"] = Counts()
    assert rig.run(300) == "Guarding"


def test_the_last_step_waits_for_its_comparisons_where_they_can_be_made(climbing: Cluster) -> None:
    """A person skips each step before it."""
    climbing.check_step = lambda before, after: None  # these steps have no evidence
    climbing.traffic = False
    for step in (1, 2, 3):
        say(climbing, "skip", f"{climbing.status['canary']['revision']}/{step}")
        climbing.run(3)
    assert climbing.weight(uri(1)) == 50
    assert "the last weight at which arms are compared" in climbing.status["verdict"]
    climbing.traffic = True
    assert climbing.settle() == "Healthy"


def test_a_last_step_to_which_nobody_plays_is_stalled_after_its_deadline(climbing: Cluster) -> None:
    """It held in silence, as one that waits for the next look."""
    climbing.check_step = lambda before, after: None  # these steps have no evidence
    climbing.traffic = False
    for step in (1, 2, 3):
        say(climbing, "skip", f"{climbing.status['canary']['revision']}/{step}")
        climbing.run(3)
    climbing.run(300)
    assert "the last weight at which arms are compared" in climbing.status["verdict"]
    stalled = next(item for item in climbing.status["conditions"] if item["type"] == "Stalled")
    assert (stalled["status"], stalled["reason"]) == ("True", "EvidenceOverdue")
