"""Every way in which evidence can be missing holds the rollout, with a reason of its own and a sentence."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.decide_deployment import decide
from learnloop_operator.rollout.evidence import Evidence, Missing
from learnloop_operator.rollout.state.snapshot import Snapshot
from learnloop_operator.statistics.e_values import Counts
from testing.simulation.rollout_cluster import BETTER, Cluster, fields, uri
from testing.simulation.two_arm_rig import SUCCESS, Rig

OWN = {"name": "own", "type": "promql", "query": "own", "min": 0.0}
Change = Callable[[Evidence, Snapshot], Evidence]


def canary_with(**changes) -> Change:
    """The canary's evidence with some fields changed."""

    def change(evidence: Evidence, snapshot: Snapshot) -> Evidence:
        revision = snapshot.before.canary.revision
        return replace(evidence, arms={**evidence.arms, revision: replace(evidence.arms[revision], **changes)})

    return change


def own(problem: Missing) -> Change:
    return canary_with(custom={}, problems={"own": problem})


def without_canary(evidence: Evidence, snapshot: Snapshot) -> Evidence:
    assert snapshot.before.canary is not None
    return replace(
        evidence, arms={name: arm for name, arm in evidence.arms.items() if name != snapshot.before.canary.revision}
    )


def clock(seconds: float) -> Change:
    return lambda evidence, snapshot: replace(evidence, clock=snapshot.now + timedelta(seconds=seconds))


def scraped(seconds: float) -> Change:
    return lambda evidence, snapshot: canary_with(scraped_at=snapshot.now + timedelta(0, seconds))(evidence, snapshot)


@pytest.mark.parametrize(
    ("change", "reason", "sentence"),
    [
        (lambda *_: Evidence(unavailable="gone"), reasons.PROVIDER_DOWN, "no evidence: gone"),
        (
            lambda *_: Evidence(unavailable="bad_data", reason=reasons.PROVIDER_REFUSED),
            reasons.PROVIDER_REFUSED,
            "no evidence: bad_data",
        ),
        (without_canary, reasons.EMPTY_RESULT, "Prometheus has no series of the canary"),
        (canary_with(success_rate=float("nan")), reasons.NOT_A_NUMBER, "(it is nan)"),
        (own(Missing(reasons.NOT_A_NUMBER, "the query gave nan")), reasons.NOT_A_NUMBER, "(the query gave nan)"),
        (own(Missing(reasons.EMPTY_RESULT, "the query gave no number")), reasons.EMPTY_RESULT, "own: no number"),
        (own(Missing(reasons.AMBIGUOUS_RESULT, "the query gave 2")), reasons.AMBIGUOUS_RESULT, "the query gave 2"),
        (canary_with(episodes=3), reasons.NOT_ENOUGH_DATA, "3 of 20 canary episodes finished, 17 more needed, about"),
        (clock(3600.0), reasons.CLOCK_SKEW, "Prometheus' clock is about 1h00m ahead of the operator's"),
        (clock(-90.0), reasons.CLOCK_SKEW, "Prometheus' clock is about 2m00s behind the operator's"),
        (scraped(60.0), reasons.CLOCK_SKEW, "the canary's last sample is about 1m00s in the future"),
        (scraped(-600.0), reasons.STALE_SAMPLES, "a pod of the canary was last scraped about 10m00s ago"),
    ],
)
def test_a_hold_has_its_own_reason_and_sentence(change: Change, reason: str, sentence: str) -> None:
    rig = Rig(1, 0.9, {"name": "success", "type": "success", "min": 0.1}, OWN)
    while (rig.status.get("weight") or 0) < 10:
        rig.run(1)
    rig.now += timedelta(seconds=20)
    rig.played = {"canary": Counts(30, 27), "stable": Counts(300, 270)}
    snapshot = rig.snapshot()
    held = decide(replace(snapshot, evidence=change(snapshot.evidence, snapshot)))
    assert held.status["weight"] == 10
    assert "blockedRevision" not in held.status
    assert sentence in held.status["verdict"]
    data = next(item for item in held.status["conditions"] if item["type"] == "DataAvailable")
    assert data["reason"] == reason
    assert data["status"] == ("Unknown" if reason in reasons.PROVIDER else "False")
    assert decide(snapshot).status["step"] == 1, "nothing else held it"


def test_a_counter_that_falls_changes_nothing_until_it_has_caught_up() -> None:
    rig = Rig(1, 0.9)
    rig.run(60)
    before = rig.evidence
    rig.played["canary"] = Counts(40, 36)
    rig.look()
    assert (rig.evidence["judged"], rig.evidence["logFine"]) == (before["judged"], before["logFine"])
    assert rig.run(900) == "Guarding"


def test_not_enough_data_shows_the_episodes_and_the_time_that_are_still_needed() -> None:
    rig = Rig(1, 0.9)
    rig.run(60)
    assert rig.evidence["neededEpisodes"] > 0
    assert rig.evidence["estimatedAt"] > rig.now.isoformat()
    assert " more canary episodes needed, " in rig.status["verdict"]


@pytest.fixture
def silent() -> Cluster:
    """A canary at its first step without any episode."""
    cluster = Cluster()
    cluster.run(10)
    cluster.wish(1, BETTER)
    cluster.traffic = False
    return cluster


def conditions(cluster: Cluster) -> dict[str, dict]:
    return {item["type"]: item for item in cluster.status["conditions"]}


def test_a_rollout_without_traffic_is_stalled_after_its_deadline_and_nothing_is_rolled_back(silent: Cluster) -> None:
    silent.run(50)
    assert conditions(silent)["Stalled"]["status"] == "False"
    silent.run(300)
    by_type = conditions(silent)
    assert [by_type[it]["status"] for it in ("Stalled", "Reconciling")] == ["True", "False"], "kstatus asks both"
    assert by_type["DataAvailable"]["reason"] == "NotEnoughData"
    assert "nothing new for 60 s, holding, not rolling back" in silent.status["verdict"]
    assert silent.events.count("EvidenceOverdue") == 1
    assert silent.weight(uri(1)) == 10
    assert "blockedRevision" not in silent.status


def test_a_stalled_rollout_costs_no_further_write(silent: Cluster) -> None:
    silent.run(300)
    before = silent.status
    silent.run(100)
    # The routing table is renewed now and then: its end is the switch that works without an operator.
    assert {**silent.status, "routingGeneration": 0} == {**before, "routingGeneration": 0}


def test_a_step_whose_episodes_stop_coming_is_written_a_few_times_and_not_at_every_look(silent: Cluster) -> None:
    silent.traffic = True
    while silent.status.get("weight") != 10 or not silent.status["canary"].get("episodes"):
        silent.run(1)
    silent.traffic = False
    silent.spec["rollout"]["steps"] = [{**step, "minEpisodes": 1000} for step in silent.spec["rollout"]["steps"]]
    silent.run(3)
    events = []
    for _ in range(600):
        silent.run(1)
        if silent.status["verdict"] not in events:
            events.append(silent.status["verdict"])
    assert " more needed, about " in events[-1]
    assert len(events) <= 10


def test_a_stalled_rollout_goes_on_when_traffic_comes(silent: Cluster) -> None:
    silent.run(200)
    silent.traffic = True
    silent.run(15)
    assert conditions(silent)["Stalled"]["status"] == "False"
    assert silent.settle() == "Healthy"
    assert silent.promotions


def test_a_rollout_that_is_slow_but_gets_episodes_is_not_stalled() -> None:
    rig = Rig(1, 0.9, {**SUCCESS, "maxDrop": 0.001})
    rig.spec["rollout"]["progressDeadlineSeconds"] = 60
    for _ in range(60):
        rig.run(10)
        assert "Stalled" not in rig.events
        stalled = next(item for item in rig.status["conditions"] if item["type"] == "Stalled")
        assert stalled["status"] == "False" or "no end in sight" in rig.status["verdict"]


def test_a_provider_that_is_away_for_the_deadline_stalls_the_rollout() -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.rise(1, BETTER, 10)
    cluster.run(3)
    cluster.prometheus = False
    cluster.run(30)
    assert conditions(cluster)["Stalled"]["status"] == "False"
    cluster.run(60)
    assert conditions(cluster)["Stalled"]["reason"] == "EvidenceOverdue"


RATIO = {"name": "success", "type": "success", "minRatio": 0.9, "minEpisodes": 5}


def test_at_the_last_step_without_stables_episodes_what_was_compared_before_counts() -> None:
    rig = Rig(1, 0.95, RATIO)
    rig.spec["rollout"]["steps"] = [{"weight": 50}, {"weight": 100, "minSeconds": 10}]
    while rig.status.get("weight") != 100:
        rig.run(1)
    rig.played["stable"] = Counts()
    assert rig.run(60) == "Guarding"


@pytest.mark.parametrize(
    ("metric", "changed"), [(SUCCESS, {**SUCCESS, "maxDrop": 0.04}), (RATIO, {**RATIO, "minRatio": 0.95})]
)
def test_a_comparison_that_is_changed_at_the_last_step_holds_until_it_is_restarted(metric, changed):
    rig = Rig(1, 0.95, metric)
    rig.spec["rollout"]["progressDeadlineSeconds"] = 20
    rig.spec["rollout"]["steps"] = [{"weight": 50}, {"weight": 100, "minSeconds": 10}]
    while rig.status.get("weight") != 100:
        rig.run(1)
    rig.spec["analysis"]["metrics"] = [changed]
    assert rig.run(300) == "Progressing"
    assert rig.status["weight"] == 100
    stalled = next(item for item in rig.status["conditions"] if item["type"] == "Stalled")
    assert stalled["status"] == "True"


def test_a_breach_counts_even_where_samples_are_old() -> None:
    rig = Rig(1, 0.3, {"name": "success", "type": "success", "min": 0.5, "minEpisodes": 5})
    while (rig.status.get("weight") or 0) < 10:
        rig.run(1)
    rig.now += timedelta(seconds=20)
    rig.played = {"canary": Counts(30, 3), "stable": Counts(300, 270)}
    snapshot = rig.snapshot()
    old = scraped(-600.0)(snapshot.evidence, snapshot)
    assert decide(Snapshot(**{**fields(snapshot), "evidence": old})).status["phase"] == "RolledBack"
