"""Which rollouts the record tells of: several in a row, as the operator's simulator went through them."""

import random
from datetime import timedelta

import pytest

from learnloop_api.kinds.model_deployment import ModelDeploymentSpec
from learnloop_api.names import verb_annotation
from learnloop_operator.cli.recorded_rollouts import PodSamples, RecordedRollout, recorded, with_guests
from learnloop_operator.rollout.evidence import Evidence
from learnloop_operator.rollout.model.snapshot import Model
from learnloop_operator.rollout.replay import Replay
from testing.simulation.rollout_cluster import BAD, BETTER, GOOD, LEAST
from testing.simulation.scraped_cluster import Happened, ScrapedCluster

DAY = timedelta(days=1)


@pytest.fixture
def cluster() -> ScrapedCluster:
    """Serves its first model for a minute."""
    cluster = ScrapedCluster()
    cluster.run(60)
    return cluster


def rolled(cluster: ScrapedCluster, number: int, quality: float, rest: int = 60) -> None:
    """Roll a model out to its end, and let it be."""
    cluster.wish(number, quality)
    cluster.run(5)
    cluster.settle()
    cluster.run(20)  # until the arm that lost is gone
    cluster.tick(rest)


def retried(cluster: ScrapedCluster, quality: float, rest: int = 60) -> None:
    """Try the blocked revision again; it may have got better."""
    pinned = cluster.status["blockedRevision"]
    cluster.quality[pinned["uri"]] = quality
    cluster.annotations[verb_annotation("retry")] = f"{pinned['revision']} at {cluster.now.isoformat()}"
    cluster.run(5)
    cluster.settle()
    cluster.run(20)  # until the arm that lost is gone
    cluster.tick(rest)


def on_record(cluster: ScrapedCluster) -> list[RecordedRollout]:
    return cluster.history().rollouts("ns", "md", DAY)


def told(rollouts: list[RecordedRollout]) -> list[tuple[str, str, bool]]:
    return [(one.canary, one.stable, one.promoted) for one in rollouts]


def really(happened: list[Happened]) -> list[tuple[str, str, bool]]:
    return [(one.canary, one.stable, one.fate == "promoted") for one in happened]


def verdict(cluster: ScrapedCluster, past: RecordedRollout) -> str:
    """What the replay of one rollout ends in, by the episodes that were played."""
    spec = ModelDeploymentSpec.model_validate(cluster.spec)
    replay = Replay("ns", "md", spec, Model(past.canary, "https://c"), Model(past.stable, "https://s"), past.began)
    at, now, fate = past.began, cluster.now, "running"
    while at <= past.ended and not replay.over:
        cluster.asked_at(at)
        known = {window.revision: cluster.seen(window.revision, window.seconds) for window in replay.asked(at)}
        look = replay.look(at, Evidence(known))
        fate = {"RolledBack": "RolledBack", "Guarding": "promoted", "Healthy": "promoted"}.get(look.phase, fate)
        at += timedelta(seconds=2)
    cluster.now = now
    return fate


def test_promoted_rolled_back_retried_and_promoted_in_a_row_have_the_same_stable_and_verdict_as_the_operator(
    cluster: ScrapedCluster,
) -> None:
    rolled(cluster, 1, BETTER)
    rolled(cluster, 2, BAD)
    retried(cluster, BAD)
    retried(cluster, BETTER)
    rolled(cluster, 3, BETTER)
    rolled(cluster, 4, BAD)
    fates = [one.fate for one in cluster.happened]
    assert fates == ["promoted", "RolledBack", "RolledBack", "promoted", "promoted", "RolledBack"]
    rollouts = on_record(cluster)
    assert told(rollouts) == really(cluster.happened)
    assert [verdict(cluster, past) for past in rollouts] == fates
    for past, one in zip(rollouts, cluster.happened, strict=True):
        assert abs((past.began - one.began).total_seconds()) <= 10


@pytest.mark.parametrize("seed", range(3))
def test_any_sequence_of_rollouts_is_told_as_it_was(seed: int) -> None:
    source = random.Random(seed)
    cluster = ScrapedCluster(every=source.choice([1, 2, 5]), start=source.randint(1, 8), grace=source.randint(0, 30))
    cluster.run(60)
    for number in range(1, 7):
        if "blockedRevision" in cluster.status and source.random() < 0.5:
            cluster.tick(
                30
            )  # a retry within the time that pods take to end cannot be told from a pod that was replaced
            retried(cluster, source.choice([BAD, BETTER]), source.randint(0, 90))
        else:
            rolled(cluster, number, source.choice([BAD, GOOD, BETTER]), source.randint(0, 90))
    cluster.tick(60)  # until the pods of the last one replaced are gone
    assert told(on_record(cluster)) == really(cluster.happened)


def test_a_revision_that_was_stable_once_and_comes_again_is_a_canary_then(cluster: ScrapedCluster) -> None:
    rolled(cluster, 1, BETTER, 300)
    rolled(cluster, 0, BETTER, 300)
    rolled(cluster, 2, BAD)
    assert [one.fate for one in cluster.happened] == ["promoted", "promoted", "RolledBack"]
    assert told(on_record(cluster)) == really(cluster.happened)


def test_a_rollback_in_the_guard_leaves_the_old_arm_stable_for_the_next_rollout() -> None:
    cluster = ScrapedCluster(keep=120)
    cluster.spec["analysis"]["metrics"] = LEAST
    cluster.run(60)
    cluster.promote(1, BETTER)
    cluster.quality[cluster.spec["model"]["uri"]] = BAD
    cluster.run(100)
    assert cluster.happened[0].fate == "RolledBack"
    rolled(cluster, 2, BETTER)
    assert told(on_record(cluster)) == really(cluster.happened)
    assert on_record(cluster)[1].stable == cluster.happened[0].stable


def test_a_guard_that_is_skipped_for_the_next_model_leaves_the_promoted_arm_stable() -> None:
    cluster = ScrapedCluster(keep=600, grace=30)
    cluster.run(60)
    cluster.promote(1, BETTER)
    cluster.wish(2, BETTER)
    cluster.run(10)
    model = cluster.snapshot().desired.model
    assert model is not None
    cluster.annotations[verb_annotation("skip")] = f"{model.revision} at {cluster.now.isoformat()}"
    cluster.run(120)
    rollouts = on_record(cluster)
    assert (rollouts[1].canary, rollouts[1].stable) == (cluster.happened[1].canary, cluster.happened[0].canary)


def test_a_canary_that_another_one_replaces_was_beside_the_same_stable(cluster: ScrapedCluster) -> None:
    cluster.traffic = False
    cluster.wish(1, BETTER)
    cluster.run(60)
    rolled(cluster, 2, BETTER)
    assert [one.fate for one in cluster.happened] == ["replaced", "promoted"]
    assert told(on_record(cluster)) == really(cluster.happened)


@pytest.mark.parametrize("away", [20, 200, 900])
def test_a_prometheus_that_was_away_in_mid_rollout_makes_no_second_rollout(cluster: ScrapedCluster, away: int) -> None:
    cluster.traffic = False
    cluster.wish(1, BETTER)
    cluster.run(30)
    cluster.blind = True
    cluster.tick(away)
    cluster.blind = False
    cluster.run(30)
    rolled(cluster, 1, BETTER)
    rolled(cluster, 2, BAD)
    assert told(on_record(cluster)) == really(cluster.happened)


def test_an_arm_that_went_while_prometheus_was_away_is_not_taken_for_one_that_is_there(cluster: ScrapedCluster) -> None:
    rolled(cluster, 1, BETTER, 0)
    cluster.blind = True
    cluster.tick(60)
    cluster.blind = False
    rolled(cluster, 2, BAD)
    assert told(on_record(cluster)) == really(cluster.happened)


@pytest.mark.parametrize("who", ["stable", "canary"])
def test_pods_that_could_not_be_scraped_for_a_while_were_there(cluster: ScrapedCluster, who: str) -> None:
    cluster.traffic = False
    cluster.wish(1, BETTER)
    cluster.run(30)
    cluster.unseen = {cluster.status[who]["revision"]}
    cluster.run(90)
    cluster.unseen = set()
    rolled(cluster, 1, BETTER)
    assert told(on_record(cluster)) == really(cluster.happened)


def test_stable_whose_only_pod_was_replaced_in_mid_rollout_is_not_rolled_out_again(cluster: ScrapedCluster) -> None:
    cluster.grace, cluster.start, cluster.traffic = 1, 40, False
    cluster.wish(1, BETTER)
    cluster.run(60)
    cluster.evict(cluster.status["stable"]["revision"])
    cluster.run(60)
    rolled(cluster, 1, BETTER)
    assert told(on_record(cluster)) == really(cluster.happened)


def test_a_record_that_begins_in_mid_rollout_knows_by_the_processes_who_was_stable(cluster: ScrapedCluster) -> None:
    rolled(cluster, 1, BETTER, 300)
    cluster.traffic = False
    cluster.wish(2, BETTER)
    cluster.run(60)
    for pod, times in cluster.scrapes.items():
        cluster.scrapes[pod] = [moment for moment in times if moment > cluster.now.timestamp() - 30]
    cluster.scrapes = {pod: times for pod, times in cluster.scrapes.items() if times}
    rolled(cluster, 3, BAD)
    assert told(on_record(cluster)) == really(cluster.happened)[2:]


def pods(**spells: tuple[int, int]) -> list[PodSamples]:
    """A pod for each revision, seen each 5 s from the first to the last second."""
    return [
        PodSamples(revision, f"pod-{revision}", [float(moment) for moment in range(first, last + 1, 5)])
        for revision, (first, last) in spells.items()
    ]


def test_the_winner_of_an_experiment_is_the_next_rollouts_stable_be_it_canary_or_guest() -> None:
    for winner, loser in (("canary", "guest"), ("guest", "canary")):
        arms = {"old": (0, 900), winner: (100, 2000), loser: (100, 600), "next": (1500, 1600)}
        rollouts = with_guests(recorded(pods(**arms), 5.0), {"guest"})
        assert [(one.canary, one.stable, one.guests) for one in rollouts] == [
            ("canary", "old", {"guest"}),
            ("next", winner, frozenset()),
        ]


def test_a_guest_of_long_ago_is_no_guest_of_a_later_rollout() -> None:
    arms = {"old": (0, 400), "new": (100, 3000), "guest": (2000, 2300)}
    rollouts = with_guests(recorded(pods(**arms), 5.0), {"guest"})
    assert [(one.canary, one.stable) for one in rollouts] == [("new", "old"), ("guest", "new")]


def test_a_record_without_pods_names_goes_by_the_gaps() -> None:
    times = [float(moment) for moment in range(0, 1001, 5)]
    tries = [moment for moment in times if 100 <= moment <= 200 or 500 <= moment <= 600]
    rollouts = recorded([PodSamples("old", "", times), PodSamples("bad", "", tries)], 5.0)
    assert [(one.canary, one.stable, one.promoted) for one in rollouts] == [("bad", "old", False)] * 2


def test_a_record_without_pods_has_no_rollouts() -> None:
    assert recorded([], 5.0) == []
    assert recorded([PodSamples("old", "pod", [])], 5.0) == []
