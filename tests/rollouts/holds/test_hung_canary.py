"""Episodes that never end are evidence: survivors alone do not speak for an arm."""

from datetime import timedelta
from statistics import median

import pytest

from learnloop_operator.rollout import reasons
from testing.simulation.rollout_cluster import BETTER, GOOD, MODES, Cluster, uri

DEADLINE = 30


def served(mode: str = "service", lasts: int = 2, **hangs: float) -> Cluster:
    """A cluster whose first model serves; `one` and `two`: the share of each model's episodes that never end."""
    cluster = Cluster().by(mode)
    cluster.spec["analysis"]["episodeDeadlineSeconds"] = DEADLINE
    cluster.lasts, cluster.per_second = lasts, 20
    cluster.hangs = {uri(0): hangs.get("one", 0.0), uri(1): hangs.get("two", 0.0)}
    cluster.run(10 + 2 * lasts)
    assert cluster.status["phase"] == "Healthy"
    return cluster


@pytest.mark.parametrize("mode", MODES)
def test_a_canary_that_hangs_a_fifth_of_the_time_is_rolled_back_within_300_episodes(mode: str) -> None:
    due = []
    for seed in range(5):
        cluster = served(mode, two=0.2)
        cluster.spec["rollout"]["steps"] = [{"weight": 10, "minEpisodes": 2000}, {"weight": 100, "minEpisodes": 6}]
        cluster.random.seed(seed)
        cluster.wish(1, BETTER)
        while cluster.status["phase"] != "RolledBack":
            cluster.run(1)
        revision = cluster.status["blockedRevision"]["revision"]
        openings = cluster.opened.since(revision, cluster.now - timedelta(hours=1), cluster.now, DEADLINE)
        due.append(openings.due)
        text = cluster.status["blockedRevision"]["message"]
        assert text.startswith("RolledBack at 10 %: ")
        assert f"that the canary got more than {DEADLINE} s ago have not ended; bar 0.1 beyond the 0 of stable" in text
    assert median(due) <= 300, due


@pytest.mark.parametrize("mode", MODES)
def test_a_canary_that_hangs_a_fifth_of_the_time_gets_no_second_step(mode: str) -> None:
    """Steps that are much shorter than the deadline were passed by the survivors, and the guard alone found it."""
    cluster = served(mode, two=0.2)
    cluster.spec["analysis"]["episodeDeadlineSeconds"] = 120
    cluster.spec["rollout"]["steps"] = [{"weight": weight, "minSeconds": 30} for weight in (10, 50, 100)]
    cluster.wish(1, BETTER)
    cluster.run(120)
    assert cluster.weight(uri(1)) == 10
    assert "and most others ended within" in cluster.status["verdict"]
    assert reasons.EPISODES_UNFINISHED in {item["reason"] for item in cluster.status["conditions"]}
    cluster.run(180)
    assert cluster.status["phase"] == "RolledBack"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.6])
def test_identical_arms_that_leave_as_many_episodes_open_are_told_apart_by_nobody(share: float, seed: int) -> None:
    cluster = served(one=share, two=share)
    cluster.random.seed(seed)
    cluster.wish(1, GOOD)
    assert cluster.settle() == "Healthy"
    assert cluster.promotions


def test_a_deadline_that_is_shorter_than_episodes_take_takes_no_good_arm_back() -> None:
    cluster = served(lasts=3 * DEADLINE)
    cluster.wish(1, GOOD)
    assert cluster.settle() == "Healthy"
    assert "RolledBack" not in cluster.events


def test_a_canary_that_hangs_after_its_promotion_is_rolled_back_in_the_guard() -> None:
    cluster = served()
    cluster.spec["rollout"]["keepForSeconds"] = 20 * DEADLINE
    cluster.promote(1, GOOD)
    cluster.hangs[uri(1)] = 1.0
    cluster.run(6 * DEADLINE)
    assert cluster.status["phase"] == "RolledBack"
    assert "have not ended" in cluster.status["blockedRevision"]["message"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("keep", [30, 120])
def test_a_guard_no_longer_than_the_deadline_lasts_until_what_hangs_is_overdue(mode: str, keep: int) -> None:
    cluster = served(mode)
    cluster.spec["analysis"]["episodeDeadlineSeconds"] = 120
    cluster.spec["rollout"]["keepForSeconds"] = keep
    cluster.promote(1, BETTER)
    cluster.hangs[uri(1)] = 0.3
    cluster.run(180)
    assert cluster.status["phase"] == "RolledBack", cluster.status["verdict"]
    assert "have not ended" in cluster.status["blockedRevision"]["message"]


def test_a_guard_ends_in_its_time_where_episodes_are_long_and_end() -> None:
    cluster = served(lasts=DEADLINE // 2)
    cluster.promote(1, GOOD)
    cluster.run(cluster.spec["rollout"]["keepForSeconds"] + 2)
    assert cluster.status["phase"] == "Healthy", cluster.status["verdict"]


def test_a_bound_of_one_turns_the_check_of_overdue_episodes_off() -> None:
    cluster = served(two=0.3)
    cluster.spec["analysis"]["maxOverdue"] = 1.0
    cluster.wish(1, BETTER)
    assert cluster.settle() == "Healthy"
    assert cluster.promotions
