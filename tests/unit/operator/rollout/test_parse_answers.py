"""The content of Prometheus' answers: histograms, clocks, rates, and numbers that are none."""

import asyncio
from collections.abc import Mapping, Sequence
from math import inf, nan

import pytest

from learnloop_api import names
from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.prometheus.client import Prometheus, PrometheusRefused, Sample
from learnloop_operator.prometheus.gather_evidence import gather
from learnloop_operator.prometheus.queries import Arms, arm_evidence, clock_of, counters_query, histograms
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.thresholds import check
from learnloop_operator.rollout.evidence import EvidenceRequest, Openings, Verdict, Window


def request(windows: Sequence[Window], metrics: Sequence[MetricThreshold]) -> EvidenceRequest:
    return EvidenceRequest("ns", "md", tuple(windows), tuple(metrics))


def of(signal: str, value: float, **labels: str) -> Sample:
    return Sample({"revision": "aaaaaaaa", "learnloop_signal": signal, **labels}, value)


def test_buckets_never_fall_and_broken_ones_are_left_out() -> None:
    buckets = histograms(
        [of("latency", 5.0, le="0.01"), of("latency", 4.9, le="0.1"), of("latency", 9.0, le="+Inf")]
        + [of("latency", nan, le="0.5"), of("latency", 1.0, le="wide"), of("latency", 1.0), of("whole", 1.0, le="1")],
        "latency",
    )
    assert buckets == {"aaaaaaaa": {0.01: 5.0, 0.1: 5.0, inf: 9.0}}


def test_a_clock_is_read_and_an_impossible_one_is_none() -> None:
    clock = clock_of([of("ended", 1.0), Sample({"learnloop_signal": "clock"}, 0.0)])
    assert clock.year == 1970
    assert clock_of([Sample({"learnloop_signal": "clock"}, inf)]) is None
    assert clock_of([]) is None


def test_a_counter_that_is_no_number_speaks_for_no_figure_of_its_arm() -> None:
    evidence = arm_evidence([of("ended", 9.0, outcome="success"), of("gain", nan), of("lately", 4.0)])["aaaaaaaa"]
    assert (evidence.episodes, evidence.success_rate, evidence.mean_return, evidence.lately) == (9, None, None, 4)
    assert evidence.problems[""].reason == reasons.NOT_A_NUMBER


class Answers(Prometheus):
    """Prometheus' answers by the beginning of the query; the arm has ended nine episodes."""

    def __init__(self, answers: Mapping[str, float | None]) -> None:
        super().__init__("http://127.0.0.1:9")
        self.answers = answers

    async def query(self, promql: str, namespace: str = "") -> list[Sample]:
        for start, value in self.answers.items():
            if promql.startswith(start):
                if value is None:
                    raise PrometheusRefused("Prometheus: bad_data: parse")
                return [Sample({}, value)]
        return [of("ended", 9.0, outcome="success")] if "ended" in promql else []


@pytest.mark.parametrize(
    ("answer", "reason"), [(nan, reasons.NOT_A_NUMBER), (inf, reasons.NOT_A_NUMBER), (None, reasons.PROVIDER_REFUSED)]
)
async def test_a_query_without_a_number_is_missing_with_its_reason(answer: float | None, reason: str) -> None:
    answers = Answers({"good": answer})
    own = MetricThreshold(name="own", type="promql", query="good[$window]", min=0)
    evidence = (await gather(answers, request([Window("aaaaaaaa", 30)], [own]), answers)).arms["aaaaaaaa"]
    assert evidence.problems["own"].reason == reason
    assert not evidence.custom


class Buckets(Prometheus):
    """Nine episodes, and a histogram of latencies whose count of all requests is `all_of_them`."""

    def __init__(self, all_of_them: float) -> None:
        super().__init__("http://127.0.0.1:9")
        self.all_of_them = all_of_them

    async def query(self, promql: str, namespace: str = "") -> list[Sample]:
        if "_bucket" in promql:
            return [of("latency", 80.0, le="0.1"), of("latency", self.all_of_them, le="+Inf")]
        return [of("ended", 9.0, outcome="success")]


async def test_a_latency_that_is_no_number_holds_and_says_that_it_is_none() -> None:
    slow = MetricThreshold.model_validate({"name": "slow", "type": "latency", "max": 1.0, "minEpisodes": 5})
    for count, verdict, reason in ((nan, Verdict.HOLD, reasons.NOT_A_NUMBER), (90.0, Verdict.PASS, "")):
        arm = (await gather(Buckets(count), request([Window("aaaaaaaa", 30)], [slow]))).arms["aaaaaaaa"]
        result = check(slow, arm, None, 0.01)
        assert result.verdict is verdict
        assert not reason or (result.reason, "answers nan for its latency counter" in result.sentence) == (reason, True)


class Crowd(Prometheus):
    """Counts how many of the user's queries are asked simultaneously."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9")
        self.now = self.most = self.requests = 0

    async def query(self, promql: str, namespace: str = "") -> list[Sample]:
        if names.METRIC_EPISODES_ENDED in promql:
            return [of("ended", 9.0, outcome="success")]
        self.now, self.requests = self.now + 1, self.requests + 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(0)
        finally:
            self.now -= 1
        return [Sample({}, 1.0)]


async def test_many_queries_are_asked_side_by_side_and_each_once() -> None:
    crowd, window = Crowd(), Window("aaaaaaaa", 30)
    metrics = [MetricThreshold(name=f"m{index}", type="promql", query=f"q{index % 16}", min=0) for index in range(20)]
    figures = (await gather(crowd, request([window], metrics), crowd)).arms["aaaaaaaa"]
    assert figures.custom == {metric.name: 1.0 for metric in metrics}
    assert (crowd.requests, crowd.most) == (16, 16)


def test_openings_are_read_beside_endings_and_are_unknown_where_nobody_counts_them() -> None:
    samples = [of("ended", 60.0, outcome="success"), of("ended", 4.0, outcome="withdrawn"), of("opened", 100.0)]
    lasted = [of("lasted", 16.0, le="1.0"), of("lasted", 64.0, le="+Inf")]
    young = [of("young", 3.0, le="1.0"), of("young", 9.0, le="10.0"), of("young", 7.0, le="30.0")]
    openings = arm_evidence([*samples, of("due", 90.0), of("in_time", 48.0), *lasted, *young])["aaaaaaaa"].openings
    histogram = {1.0: 16.0, inf: 64.0}
    assert openings == Openings(opened=100.0, due=90.0, closed=64.0, in_time=48.0, young=9.0, lasted=histogram)
    assert (openings.open_share, openings.late_share) == (0.36, 0.25)
    assert arm_evidence(samples[:2])["aaaaaaaa"].openings is None
    assert arm_evidence([of("ended", 0.0, outcome="success"), of("opened", 9.0)])["aaaaaaaa"].openings is not None


def test_openings_that_are_due_are_those_of_before_the_deadline() -> None:
    query = counters_query(Arms("ns", "md", ["aaaaaaaa"]), 700, deadline=600)
    assert f"increase({names.METRIC_EPISODES_OPENED}" in query
    assert "[100s] offset 600s)" in query
    assert f'{names.METRIC_EPISODE_SECONDS}_bucket{{namespace="ns"' in query
    assert 'le="600.0"' in query
    young = counters_query(Arms("ns", "md", ["aaaaaaaa"]), 600, deadline=600)
    assert "offset 600s" in young, "the samples of before the window"
    assert '"due"' not in young
    assert "opened" not in counters_query(Arms("ns", "md", ["aaaaaaaa"]), 700)
