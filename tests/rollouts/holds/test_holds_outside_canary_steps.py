"""Shadow steps, experiments and the way to the first weight hold like any step: with a reason, and not unseen."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from math import inf, nan

import pytest

from learnloop_operator.prometheus.client import Sample
from learnloop_operator.prometheus.gather_evidence import shadow_evidence
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.decide_deployment import decide
from learnloop_operator.rollout.evidence import Evidence, ShadowEvidence
from learnloop_operator.rollout.state.snapshot import Snapshot
from learnloop_operator.statistics import several_arms
from learnloop_operator.statistics.e_values import Counts
from testing.simulation.experiment_cluster import ExperimentCluster
from testing.simulation.rollout_cluster import BETTER, Cluster, fields, uri
from testing.simulation.shadow_cluster import ShadowCluster

Change = Callable[[Evidence, Snapshot], Evidence]


def condition(status: dict, name: str) -> dict:
    return next(item for item in status["conditions"] if item["type"] == name)


def data(status: dict) -> tuple[str, str]:
    item = condition(status, "DataAvailable")
    return item["status"], item["reason"]


@pytest.mark.parametrize("value", [nan, inf])
@pytest.mark.parametrize("signal", ["errors", "compared", "within"])
def test_a_counter_of_copies_that_is_no_number_silences_all_of_them(signal: str, value: float) -> None:
    samples = {"compared": 200.0, "agreed": 190.0, "errors": 0.0, signal: value}
    evidence = shadow_evidence(
        [Sample({"learnloop_signal": name, "le": "0.1"}, number) for name, number in samples.items()]
    )
    assert evidence == ShadowEvidence(broken=f"Prometheus answers {value} for its {signal} counter")


def clock(seconds: float) -> Change:
    return lambda evidence, snapshot: replace(evidence, clock=snapshot.now + timedelta(seconds=seconds))


def copies(**changes) -> Change:
    return lambda evidence, _: replace(evidence, shadow=replace(evidence.shadow or ShadowEvidence(), **changes))


@pytest.mark.parametrize(
    ("change", "reason", "sentence"),
    [
        (lambda *_: Evidence(), reasons.EMPTY_RESULT, "waiting for 60 compared requests"),
        (copies(broken="Prometheus answers nan for its errors counter"), reasons.NOT_A_NUMBER, "answers nan"),
        (clock(3600.0), reasons.CLOCK_SKEW, "Prometheus' clock is about 1h00m ahead of the operator's"),
        (
            lambda evidence, snapshot: copies(scraped_at=snapshot.now - timedelta(seconds=600))(evidence, snapshot),
            reasons.STALE_SAMPLES,
            "a pod of the canary was last scraped about 10m00s ago",
        ),
        (
            lambda *_: Evidence(unavailable="bad_data", reason=reasons.PROVIDER_REFUSED),
            reasons.PROVIDER_REFUSED,
            "no evidence: bad_data",
        ),
    ],
    ids=["nothing", "nan", "skew", "stale", "refused"],
)
def test_a_shadow_step_holds_with_the_reason(change: Change, reason: str, sentence: str) -> None:
    cluster = ShadowCluster()
    cluster.run(10)
    cluster.wish(1, BETTER)
    while cluster.status.get("step") != 0:
        cluster.run(1)
    cluster.tick(20)
    snapshot = cluster.snapshot()
    held = decide(Snapshot(**{**fields(snapshot), "evidence": change(snapshot.evidence, snapshot)})).status
    assert (held["step"], held["weight"]) == (0, 0)
    assert "blockedRevision" not in held
    assert sentence in held["verdict"]
    assert data(held)[1] == reason
    assert decide(snapshot).status["step"] == 1, "nothing else held it"


@pytest.mark.parametrize("in_shadow", [True, False])
def test_a_provider_that_is_away_before_the_first_weight_stalls_the_rollout_and_takes_nothing_back(in_shadow):
    cluster = ShadowCluster() if in_shadow else Cluster()
    cluster.run(10)
    cluster.wish(1, BETTER)
    cluster.prometheus = False
    cluster.run(40)
    assert condition(cluster.status, "Stalled")["status"] == "False"
    cluster.run(120)
    assert condition(cluster.status, "Stalled")["reason"] == "EvidenceOverdue"
    assert data(cluster.status) == ("Unknown", "ProviderDown")
    assert (cluster.weight(uri(1)), "blockedRevision" in cluster.status) == (0, False)
    cluster.prometheus = True
    assert cluster.settle() == "Healthy"
    assert cluster.status["stable"]["uri"] == uri(1)


def running(**more) -> ExperimentCluster:
    """An experiment that is not decided."""
    cluster = ExperimentCluster((0.5, 0.5), (30,), **more).start()
    while (cluster.status.get("experiment") or {}).get("phase") != "Running":
        cluster.run(5)
    return cluster


def changed(role: int, **changes) -> Change:
    def change(evidence: Evidence, snapshot: Snapshot) -> Evidence:
        revision = snapshot.before.experiment.arms[role].revision
        return replace(evidence, arms={**evidence.arms, revision: replace(evidence.arms[revision], **changes)})

    return change


def without(role: int) -> Change:
    def change(evidence: Evidence, snapshot: Snapshot) -> Evidence:
        gone = snapshot.before.experiment.arms[role].revision
        return replace(evidence, arms={name: arm for name, arm in evidence.arms.items() if name != gone})

    return change


@pytest.mark.parametrize(
    ("change", "reason", "sentence"),
    [
        (changed(1, mean_return=nan), reasons.NOT_A_NUMBER, "return: no number for "),
        (changed(1, mean_return=None), reasons.EMPTY_RESULT, "nothing was counted"),
        (without(1), reasons.EMPTY_RESULT, "return: Prometheus has no series of a yet"),
        (without(0), reasons.EMPTY_RESULT, "return: Prometheus has no series of stable yet"),
        (clock(-600.0), reasons.CLOCK_SKEW, "Prometheus' clock is about 10m00s behind the operator's"),
        (lambda *_: Evidence(unavailable="gone"), reasons.PROVIDER_DOWN, "no evidence: gone"),
    ],
    ids=["nan", "none", "empty", "no stable", "skew", "away"],
)
def test_an_experiment_holds_with_the_reason(change: Change, reason: str, sentence: str) -> None:
    cluster = running()
    cluster.run(30)
    snapshot = cluster.snapshot()
    held = decide(Snapshot(**{**fields(snapshot), "evidence": change(snapshot.evidence, snapshot)})).status
    assert held["experiment"]["phase"] == "Running"
    assert sentence in held["verdict"]
    assert data(held) == ("Unknown" if reason in reasons.PROVIDER else "False", reason)


def test_too_few_episodes_of_an_arm_are_said_to_be_missing() -> None:
    cluster = running(minEpisodes=5_000)
    cluster.run(60)
    assert data(cluster.status) == ("False", "NotEnoughData")
    assert "; each arm needs 5000" in cluster.status["verdict"]


def test_time_that_is_up_while_nobody_can_tell_ends_no_experiment() -> None:
    cluster = running(maxSeconds=300)
    cluster.run(60)
    cluster.prometheus = cluster.traffic = False
    cluster.run(400)
    assert cluster.status["experiment"]["phase"] == "Running"
    assert "blockedRevision" not in cluster.status
    cluster.prometheus = cluster.traffic = True
    cluster.run(20)
    assert cluster.status["experiment"]["phase"] == "Finished"
    assert " without a winner" in cluster.status["experiment"]["message"]


def test_an_arm_that_was_silent_is_not_compared_by_what_it_played_meanwhile() -> None:
    tallies = several_arms.look(several_arms.fresh(3), (Counts(0, 0),) * 3)
    tallies = several_arms.look(tallies, (Counts(50, 25), Counts(50, 25), Counts(50, 25)))
    tallies = several_arms.look(tallies, (Counts(100, 50), Counts(100, 50), None))
    again = several_arms.look(tallies, (Counts(150, 75), Counts(150, 75), Counts(150, 125)))
    assert [tally.better for tally in again] == [tally.better for tally in tallies]
    assert again[2].judged == Counts(50, 25)
