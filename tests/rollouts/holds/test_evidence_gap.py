"""Prometheus without the samples from when a rollout began: the lifetime counts of pods do not count as evidence."""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from learnloop_api import names
from learnloop_api.kinds.rollouts.analysis import MetricThreshold, ReturnRange
from learnloop_operator.prometheus.client import Sample
from learnloop_operator.prometheus.gather_evidence import shadow_evidence, shadow_query
from learnloop_operator.prometheus.queries import GRACE, Arms, arm_evidence, counters_query, latency_query
from learnloop_operator.rollout.checks.thresholds import check
from learnloop_operator.rollout.evidence import ArmEvidence, Verdict
from testing.simulation.simultaneous_evidence import at_the_same_time
from testing.simulation.two_arm_rig import RETURN, SUCCESS, Rig

RATIO = MetricThreshold(name="return", type="return", min_ratio=0.8, return_range=ReturnRange(lowest=-100, highest=100))


class Forgetful(Rig):
    """`gaps`: the pods of each role whose samples from the beginning are lost."""

    def __init__(self, seed: int, canary: float, *metrics: dict) -> None:
        self.gaps: dict[str, int] = {}
        super().__init__(seed, canary, *metrics)

    def scraped(self, role: str) -> ArmEvidence:
        return replace(super().scraped(role), gap=self.gaps.get(role, 0))


@pytest.mark.parametrize("metric", [SUCCESS, RETURN, {"name": "ratio", "type": "success", "minRatio": 0.5}])
def test_a_rollout_whose_beginning_is_lost_holds_with_the_reason_and_goes_on_when_it_is_not(metric):
    rig = Forgetful(1, 0.9, metric)
    rig.run(8)
    rig.gaps = {"stable": 2}
    assert rig.run(300) == "Progressing"
    assert rig.status["weight"] == 10
    assert "2 pods of stable that ran then" in rig.status["verdict"]
    condition = next(item for item in rig.status["conditions"] if item["type"] == "DataAvailable")
    assert (condition["status"], condition["reason"]) == ("False", "EvidenceGap")
    rig.gaps = {}
    assert rig.run(900) == "Guarding"


def test_no_test_bets_on_what_pods_counted_before_the_rollout() -> None:
    rig = Forgetful(1, 0.9)
    rig.run(60)
    judged = rig.evidence["judged"]
    rig.gaps = {"stable": 1}
    rig.played["stable"] = replace(rig.played["stable"], n=90_000, total=90_000)
    rig.run(20)
    assert rig.evidence["judged"] == judged
    assert rig.status["phase"] == "Progressing"


def test_a_hard_bound_needs_no_beginning() -> None:
    rig = Forgetful(1, 0.3, {**SUCCESS, "min": 0.5, "minEpisodes": 10})
    rig.gaps = {"stable": 1, "canary": 1}
    assert rig.run(60) == "RolledBack"


@given(st.integers(0, 9), st.integers(0, 9), st.integers(5, 99), st.floats(-99, 99), st.floats(-99, 99))
def test_nothing_passes_and_no_ratio_is_broken_across_a_gap(canary, stable, n, one, other):
    whole = at_the_same_time(RATIO, ArmEvidence(n, one), ArmEvidence(n, other))
    result = check(RATIO, ArmEvidence(n, one, gap=canary), ArmEvidence(n, other, gap=stable), 0.01, whole)
    undecided = "undecided: P(worse at the same time)" in result.sentence
    assert (result.verdict is Verdict.HOLD and not undecided) == (canary + stable > 0)


def test_only_a_process_that_says_so_was_born_in_the_window() -> None:
    began = f"last_over_time({names.METRIC_SERVER_STARTED}"
    for query in (
        counters_query(Arms("ns", "md", ["aaaaaaaa"]), 600),
        latency_query(Arms("ns", "md", ["aaaaaaaa"]), 600),
        shadow_query(Arms("ns", "md", ["aaaaaaaa"]), 600),
    ):
        born = query.count(f"and on (instance, pod) ({began}")
        assert born == query.count(f">= time() - {600 + GRACE}") > 0
        assert query.count(" or increase(") == born
    assert 'verb=~"act|infer"' not in latency_query(Arms("ns", "md", ["aaaaaaaa"]), 600).split(began)[1].split("}")[0]


def test_pods_with_a_gap_are_counted_by_arm() -> None:
    def of(signal: str, value: float, **labels: str) -> Sample:
        return Sample({"revision": "aaaaaaaa", "learnloop_signal": signal, **labels}, value)

    evidence = arm_evidence([of("ended", 6.0, outcome="success"), of("gap", 2.0)])["aaaaaaaa"]
    assert (evidence.episodes, evidence.gap) == (6, 2)
    shadow = shadow_evidence([of("compared", 6.0), of("gap", 1.0)])
    assert shadow.gap == 1
