"""From Prometheus' answers to a check's verdict: nothing that is missing ever counts as good or bad."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from math import inf
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, strategies as st
from prometheus_client.samples import Sample as ExposedSample

from learnloop_api import names
from learnloop_api.kinds.rollouts.analysis import MetricThreshold, ReturnRange
from learnloop_operator.prometheus.client import (
    Prometheus,
    PrometheusBadAnswer,
    PrometheusRefused,
    PrometheusUnreachable,
    Sample,
)
from learnloop_operator.prometheus.gather_evidence import gather
from learnloop_operator.prometheus.pod_counters import parse
from learnloop_operator.prometheus.queries import Arms, arm_evidence, counters_query
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.metric_types import type_of
from learnloop_operator.rollout.checks.thresholds import check
from learnloop_operator.rollout.evidence import ArmEvidence, EvidenceRequest, Missing, Verdict, Window
from learnloop_operator.statistics.e_values import Counts
from learnloop_serving.server_metrics import Metrics as ServerMetrics
from testing.servers.ports import held_port
from testing.simulation.simultaneous_evidence import at_the_same_time

RETURN = MetricThreshold(
    name="return", type="return", min_ratio=0.8, return_range=ReturnRange(lowest=-500, highest=500)
)
ALPHA = 0.0025
Answer = Callable[[str], Any]


def request(windows: Sequence[Window], metrics: Sequence[MetricThreshold]) -> EvidenceRequest:
    return EvidenceRequest("ns", "md", tuple(windows), tuple(metrics))


def arm(episodes: int, mean: float | None) -> ArmEvidence:
    """All of whose episodes return the same."""
    return ArmEvidence(episodes, mean, 0.9, 0.01, {0.002: 100.0, inf: 100.0})


@pytest.mark.parametrize(
    ("metric", "canary", "stable", "verdict", "sentence"),
    [
        (RETURN, arm(6, 9.3), arm(60, 486.1), Verdict.BREACH, "9.3 vs 486.1 of stable at the same time over 48"),
        (RETURN, arm(6, 480.0), arm(60, 486.1), Verdict.PASS, "return of the canary 480 vs 486.1 of stable"),
        (RETURN, arm(4, 9.3), arm(60, 486.1), Verdict.HOLD, "the canary has 4 of 5 episodes needed"),
        (RETURN, None, arm(60, 486.1), Verdict.HOLD, "no series of the canary yet, 0 of 5 episodes needed"),
        (RETURN, arm(6, None), arm(60, 486.1), Verdict.HOLD, "no number for the canary over 6 episodes"),
        (RETURN, arm(6, float("nan")), arm(60, 1.0), Verdict.HOLD, "no number for the canary"),
        (RETURN, arm(6, 480.0), None, Verdict.HOLD, "stable has 0 of 5 episodes needed to compare with"),
        (RETURN, arm(6, 480.0), arm(60, None), Verdict.HOLD, "no number for stable over 60 episodes"),
        (RETURN, arm(6, -110.0), arm(60, -100.0), Verdict.PASS, "-110 vs -100"),
        (RETURN, arm(6, -480.0), arm(60, -100.0), Verdict.BREACH, "-480 vs -100"),
        (RETURN, arm(6, -130.0), arm(60, -100.0), Verdict.HOLD, "bar 0.8×, undecided: P(worse at the same time) 0"),
        (MetricThreshold(name="e", type="errors", max=0.005), arm(9, 1.0), None, Verdict.HOLD, "at most 0.005, und"),
        (MetricThreshold(name="s", type="success", min=0.5), arm(9, 1.0), None, Verdict.PASS, "success rate"),
        (MetricThreshold(name="l", type="latency", max_ratio=2), arm(9, 1.0), arm(9, 1.0), Verdict.PASS, "latency"),
        (MetricThreshold(name="own", type="promql", min=1), arm(9, 1.0), None, Verdict.HOLD, "own: no number"),
    ],
)
def test_a_check_says_what_it_saw(metric, canary, stable, verdict, sentence):
    result = check(metric, canary, stable, ALPHA, at_the_same_time(metric, canary, stable))
    assert result.verdict is verdict
    assert sentence in result.sentence


RETURNS = st.floats(-500, 500) | st.sampled_from([float("nan"), inf, -inf])


@given(RETURNS, RETURNS, st.integers(0, 9), st.integers(0, 9))
def test_no_verdict_without_enough_finite_numbers_of_both_arms(a: float, b: float, n: int, m: int) -> None:
    result = check(RETURN, arm(n, a), arm(m, b), ALPHA, at_the_same_time(RETURN, arm(n, a), arm(m, b)))
    if not (n >= 5 and m >= 5 and abs(a) < float("inf") and abs(b) < float("inf")):
        assert result.verdict is Verdict.HOLD
    elif a >= b - 0.2 * abs(b):
        assert result.verdict is Verdict.PASS
    else:
        assert result.verdict is not Verdict.PASS


def test_counters_become_figures_and_withdrawn_episodes_are_not_finished_ones() -> None:
    def of(signal: str, value: float, **labels: str) -> Sample:
        return Sample({"revision": "aaaaaaaa", "learnloop_signal": signal, **labels}, value)

    evidence = arm_evidence(
        [
            of("ended", 6.0, outcome="success"),
            of("ended", 2.0, outcome="failure"),
            of("ended", 2.0, outcome="error"),
            of("ended", 2.0, outcome="withdrawn"),
            of("gain", 130.0),
            of("loss", 30.0),
        ]
    )["aaaaaaaa"]
    assert (evidence.episodes, evidence.mean_return, evidence.success_rate, evidence.error_rate) == (10, 10.0, 0.6, 0.2)


@pytest.mark.parametrize(("each", "bar", "verdict"), [(500.0, 450.0, Verdict.PASS), (-200.0, -150.0, Verdict.HOLD)])
def test_episodes_that_a_person_or_a_limit_touched_are_no_returns_of_zero(each, bar, verdict):
    server = ServerMetrics("md", "aaaaaaaa")
    for number in range(100):
        outcome = "success" if number < 60 else "withdrawn"
        server.ended(outcome, each, seconds=2.0)
    counted = {(item.name, item.labels.get("outcome")): item.value for item in samples_of(server)}
    samples = [
        *(sample("ended", counted[names.METRIC_EPISODES_ENDED, it], outcome=it) for it in ("success", "withdrawn")),
        sample("gain", counted[names.METRIC_EPISODE_RETURN_GAIN, None]),
        sample("loss", counted[names.METRIC_EPISODE_RETURN_LOSS, None]),
    ]
    arm = arm_evidence(samples)["aaaaaaaa"]
    assert (arm.episodes, arm.mean_return) == (60, each)
    bounded = {"name": "return", "type": "return", "min": bar, "returnRange": {"lowest": -500, "highest": 500}}
    metric = MetricThreshold.model_validate(bounded)
    assert check(metric, arm, None, ALPHA).verdict is verdict
    read = parse(server.render().decode(), "md", "aaaaaaaa").counters
    bound = next(type_of(metric).hard_bounds(metric))
    assert bound.bad(read) == Counts(60.0, pytest.approx(60.0 * (500.0 - each) / 1000.0))


def samples_of(server: ServerMetrics) -> Iterator[ExposedSample]:
    return (item for family in server.registry.collect() for item in family.samples)


def sample(signal: str, value: float, **labels: str) -> Sample:
    return Sample({"revision": "aaaaaaaa", "learnloop_signal": signal, **labels}, value)


def test_an_arm_without_a_finished_episode_has_no_figures() -> None:
    evidence = arm_evidence([Sample({"revision": "a", "learnloop_signal": "ended", "outcome": "success"}, 0.0)])
    assert evidence == {"a": ArmEvidence()}


def test_one_query_asks_for_all_counters_of_both_arms() -> None:
    query = counters_query(Arms("ns", "md", ["bbbbbbbb", "aaaaaaaa"]), 42)
    for arm in ("aaaaaaaa", "bbbbbbbb"):
        own = f'pod=~"md-{arm}-[a-z0-9]{{1,10}}-[a-z0-9]{{5}}"'
        select = f'{{namespace="ns", model_deployment="md", revision="{arm}", {own}}}'
        assert query.count(f"increase({names.METRIC_EPISODES_ENDED}{select}[42s])") == 1
        assert query.count(f"unless last_over_time({names.METRIC_EPISODES_ENDED}{select}[300s] offset 42s)") == 1
    assert query.count(" or increase(") == 6
    assert query.count('"clock"') == 1


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Answer], Awaitable[str]]]:
    """Something that answers on /api/v1/query in whatever way."""
    runners = []

    async def start(answer: Answer) -> str:
        async def handle(request: web.Request) -> web.StreamResponse:
            parsed = answer(str((await request.post())["query"]))
            parsed = await parsed if asyncio.iscoroutine(parsed) else parsed
            if isinstance(parsed, web.StreamResponse):
                return parsed
            return web.json_response(parsed, status=200 if parsed.get("status") == "success" else 422)

        application = web.Application()
        application.router.add_post("/api/v1/query", handle)
        runner = web.AppRunner(application, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        runners.append(runner)
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


def vector(*rows: tuple[dict[str, str], str]) -> dict:
    result = [{"metric": labels, "value": [1.0, value]} for labels, value in rows]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


async def hang(query: str) -> web.Response:
    await asyncio.Event().wait()
    return web.Response()


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        (
            lambda _: {"status": "error", "errorType": "bad_data", "error": "parse"},
            PrometheusRefused,
            "bad_data: parse",
        ),
        (
            lambda _: {**vector(({}, "7")), "warnings": ["No StoreAPIs matched for this query"]},
            PrometheusBadAnswer,
            "answered in part: .*No StoreAPIs",
        ),
        (lambda _: web.Response(text="<html>"), PrometheusBadAnswer, "not as a Prometheus does"),
        (lambda _: web.Response(text=json.dumps({"status": "success"})), PrometheusBadAnswer, "no known form"),
        (lambda _: web.Response(body=b"x" * 2_000_000), PrometheusUnreachable, "exceeds"),
        (hang, PrometheusUnreachable, "no answer within 0.3 s"),
    ],
)
async def test_every_way_to_get_no_number_has_a_type_and_a_sentence(serve, answer, error, sentence):
    prometheus = Prometheus(await serve(answer), timeout=0.3 if answer is hang else 60)
    with pytest.raises(error, match=sentence):
        await prometheus.query("up")
    evidence = await gather(prometheus, request([Window("aaaaaaaa", 15)], [RETURN]))
    assert evidence.unavailable
    await prometheus.close()


async def test_nobody_listening_and_nothing_configured_are_unreachable() -> None:
    with held_port() as dead:
        for url, sentence in ((f"http://127.0.0.1:{dead}", "does not answer"), ("", "LEARNLOOP_PROMETHEUS_URL")):
            prometheus = Prometheus(url)
            with pytest.raises(PrometheusUnreachable, match=sentence):
                await prometheus.query("up")
            await prometheus.close()


async def test_a_users_query_gets_its_revision_and_fails_alone(serve: Callable[[Answer], Awaitable[str]]) -> None:
    queries = []

    def answer(query: str):
        queries.append(query)
        if query.startswith("mine"):
            return vector(({}, "7")) if "aaaaaaaa" in query else vector()
        ended = {"learnloop_signal": "ended", "outcome": "success"}
        return vector(({"revision": "aaaaaaaa", **ended}, "9"), ({"revision": "bbbbbbbb", **ended}, "9"))

    prometheus = Prometheus(await serve(answer))
    own = MetricThreshold(name="own", type="promql", query='mine{n="$namespace",r="$revision"}', min=1)
    windows = [Window("aaaaaaaa", 15), Window("bbbbbbbb", 15)]
    evidence = await gather(prometheus, request(windows, [own]), prometheus)
    assert evidence.arms["aaaaaaaa"].custom == {"own": 7.0}
    assert evidence.arms["bbbbbbbb"].problems == {
        "own": Missing(reasons.EMPTY_RESULT, "the query gave no number, it must give one")
    }
    assert 'mine{n="ns",r="aaaaaaaa"}' in queries
    assert check(own, evidence.arms["bbbbbbbb"], None, ALPHA).verdict is Verdict.HOLD
    await prometheus.close()


async def test_a_users_queries_go_to_the_proxy_with_their_namespace_and_hold_without_one(serve):
    ended = {"revision": "aaaaaaaa", "learnloop_signal": "ended", "outcome": "success"}
    queries: list[str] = []

    def counted(query: str):
        queries.append(query)
        return vector((ended, "9"))

    proxy = WindowedPrometheus("http://proxy")
    prometheus, window = Prometheus(await serve(counted)), Window("aaaaaaaa", 15)
    own = MetricThreshold(name="own", type="promql", query='sum(orders{namespace="rival"})', min=1)
    arm = (await gather(prometheus, request([window], [own]), proxy)).arms["aaaaaaaa"]
    assert arm.custom == {"own": 7.0}
    assert proxy.requests == [('sum(orders{namespace="rival"})', "ns")]
    held = (await gather(prometheus, request([window], [own]))).arms["aaaaaaaa"]
    assert "set prometheus.queries.url to a prom-label-proxy" in check(own, held, None, ALPHA).sentence
    assert not any("rival" in query for query in queries), "Prometheus itself was asked"
    await prometheus.close()


class WindowedPrometheus(Prometheus):
    """Remembers what it was asked, and for which namespace."""

    requests: list[tuple[str, str]]

    async def query(self, promql: str, namespace: str = "") -> list[Sample]:
        self.requests = [(promql, namespace)]
        return [Sample({}, 7.0)]


async def test_the_namespace_is_a_parameter_of_the_request_as_prom_label_proxy_reads_it() -> None:
    queries = []

    async def handle(request: web.Request) -> web.Response:
        queries.append((request.query.get("namespace"), (await request.post()).get("query")))
        return web.json_response(vector(({}, "7")))

    application = web.Application()
    application.router.add_post("/api/v1/query", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    prometheus = Prometheus(f"http://127.0.0.1:{runner.addresses[0][1]}")
    for namespace in ("ns", ""):
        assert (await prometheus.query("up", namespace))[0].value == 7.0
    assert queries == [("ns", "up"), (None, "up")]
    await prometheus.close()
    await runner.cleanup()
