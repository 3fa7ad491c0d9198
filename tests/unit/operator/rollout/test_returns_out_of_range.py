"""Returns that leave returnRange: the worst canary of all is rolled back, and a wrong range holds and says so."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType

import pytest
from hypothesis import given, strategies as st

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricThreshold
from learnloop_operator.rollout.checks.against_stable import compared
from learnloop_operator.rollout.checks.metric_types import PLAIN, type_of
from learnloop_operator.rollout.checks.thresholds import out_of_range
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence, Verdict
from learnloop_operator.statistics.e_values import Counts
from testing.simulation.experiment_cluster import ExperimentCluster
from testing.simulation.rollout_cluster import uri
from testing.simulation.two_arm_rig import RETURN, Rig

METRIC = MetricThreshold.model_validate({**RETURN, "maxDrop": 0.05, "returnRange": {"lowest": 0.0, "highest": 1.0}})
ANALYSIS = Analysis(metrics=[METRIC])


class Straying(Rig):
    """Arms whose mean return is what `means_said` says, where it says something."""

    def __init__(self, seed: int, *metrics: dict, **returns: float) -> None:
        self.returns: dict[str, float] = {}
        super().__init__(seed, 0.9, *metrics)
        self.returns = returns

    def scraped(self, role: str) -> ArmEvidence:
        arm = super().scraped(role)
        return replace(arm, mean_return=self.returns.get(role, arm.mean_return)) if arm.episodes else arm

    def condition(self, kind: str) -> tuple[str, str]:
        entry = next(item for item in self.status["conditions"] if item["type"] == kind)
        return entry["status"], entry["reason"]


def test_a_canary_below_the_range_is_rolled_back_with_the_range_in_the_sentence() -> None:
    rig = Straying(1, RETURN, canary=-600.0)
    assert rig.run(60) == "RolledBack"
    block = rig.status["blockedRevision"]
    assert block["reason"] == "OutOfRange"
    assert block["message"].startswith("RolledBack at 10 %: return of the canary -600 over ")
    assert block["message"].endswith("lower than any single return of returnRange -100..400 may be")


@pytest.mark.parametrize("means", [{"canary": -600.0, "stable": -600.0}, {"canary": 900.0}, {"stable": 900.0}])
def test_a_range_that_is_wrong_holds_and_names_the_fix_and_stalls_when_nobody_mends_it(means: dict[str, float]) -> None:
    rig = Straying(2, RETURN, **means)
    assert rig.run(60) == "Progressing"
    assert rig.status["weight"] == 10
    assert (
        "outside returnRange -100..400 and proves nothing: set returnRange of the metric return"
        in rig.status["verdict"]
    )
    assert rig.condition("DataAvailable") == ("False", "OutOfRange")
    rig.now += timedelta(hours=1)
    rig.run(3)
    assert rig.condition("Stalled") == ("True", "EvidenceOverdue")
    assert rig.status["weight"] == 10
    rig.returns.clear()
    assert rig.run(900) == "Guarding"


def test_what_was_proven_before_covers_no_canary_that_falls_below_the_range() -> None:
    """All of its returns together still lie within it, so only those since the last bet can tell."""
    rig = Rig(3, 0.9, RETURN)
    rig.run(40)
    earlier = rig.played["canary"]
    rig.played["canary"] = Counts(earlier.n + 20, earlier.total - 50.0)
    assert rig.scraped("canary").mean_return > -100.0
    rig.look()
    assert rig.status["phase"] == "RolledBack"
    assert rig.status["blockedRevision"]["reason"] == "OutOfRange"


def arms(canary: Counts, stable: Counts) -> tuple[ArmEvidence, ArmEvidence]:
    """By their returns, on the scale 0..1."""
    one, other = (ArmEvidence(int(item.n), item.total / item.n) for item in (canary, stable))
    return one, other


arm = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.integers(1, 10_000), st.integers(1, 10_000))
def test_only_a_canary_below_beside_stable_within_is_a_breach_and_nothing_outside_is_evidence(canary, stable, n, m):
    arms = {"c": ArmEvidence(n, canary), "s": ArmEvidence(m, stable)}
    one, other = (type_of(METRIC).outcomes(METRIC, arms[name], PLAIN) for name in ("c", "s"))
    assert one is not None
    assert other is not None
    claims = out_of_range(METRIC, arms["c"], arms["s"])
    if claims is not None and claims.verdict is Verdict.BREACH:
        assert canary < 0.0
        assert other.possible
        assert n >= METRIC.min_episodes
    if claims is None and n >= METRIC.min_episodes:
        assert one.possible
        assert other.possible
    trials = compared(ANALYSIS, (), Evidence(arms), "c", "s", concurrent=True)
    if claims is not None:
        assert not any(trial.begun for trial in trials)


class OffScale(ExperimentCluster):
    """An experiment on the scale 0..1 in which the models of `returns` return something else."""

    returns: Mapping[str, float] = MappingProxyType({})

    def outcome(self, revision: str) -> float:
        return self.returns.get(self.model_of(revision), super().outcome(revision))


def test_an_arm_of_an_experiment_below_the_range_loses_and_the_other_wins() -> None:
    cluster = OffScale((0.5, 0.9, 0.5), (25, 25))
    cluster.returns = {uri(2): -5.0}
    cluster.start().finish()
    assert cluster.status["experiment"]["winner"] == "a"


@pytest.mark.parametrize("returns", [{uri(0): -5.0}, {uri(1): 7.0}])
def test_nobody_wins_an_experiment_whose_range_is_wrong_and_the_sentence_says_so(returns: dict[str, float]) -> None:
    cluster = OffScale((0.5, 0.9), (40,))
    cluster.returns = returns
    cluster.start().run(200)
    assert (cluster.promotions, cluster.weights()) == ([], {uri(0): 60, uri(1): 40})
    entry = next(item for item in cluster.status["conditions"] if item["type"] == "DataAvailable")
    assert (entry["status"], entry["reason"]) == ("False", "OutOfRange")
    assert (
        "lies outside returnRange 0..1 and proves nothing: set returnRange of the metric spec.experiment.metric"
        in cluster.status["verdict"]
    )
