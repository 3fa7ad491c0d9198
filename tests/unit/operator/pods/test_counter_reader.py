"""Reading policy servers' own counters: a real exposition, and everything a stranger might answer instead."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from hypothesis import given, strategies as st
from prometheus_client import CollectorRegistry

from learnloop_api import names
from learnloop_api.kinds.rollouts.analysis import Analysis
from learnloop_operator.core.plan import rfc3339
from learnloop_operator.operator_metrics import OperatorMetrics
from learnloop_operator.prometheus import pod_counters as counter_reader
from learnloop_operator.prometheus.pod_counters import (
    MAX_ANSWER,
    CounterReader,
    CountersUnusable,
    PodUnreachable,
    Target,
    parse,
    targets,
)
from learnloop_operator.reconcile import fast_lane_reader
from learnloop_operator.reconcile.fast_lane_reader import FastLaneReader
from learnloop_operator.reconcile.work_queue import utc_now
from learnloop_operator.rollout.fast_lane import Questions, of_analysis
from learnloop_operator.rollout.judging.watched_arms import WatchedArm
from learnloop_serving.server_metrics import Metrics as ServerMetrics

MD, REVISION, OTHER = "cart", "bbbbbbbb", "aaaaaaaa"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def server() -> ServerMetrics:
    metrics = ServerMetrics(MD, REVISION)
    metrics.opened(OTHER)
    metrics.ended("success", 12.0, seconds=2.0)
    metrics.ended("error", -3.0, seconds=1.0)
    for verb, seconds in (("act", 0.004), ("infer", 0.2), ("open", 9.0)):
        metrics.observe[verb](seconds)
    metrics.failed("act")
    metrics.failed("open")
    return metrics


def test_a_real_servers_exposition_is_read() -> None:
    metrics = server()
    reading = parse(metrics.render().decode(), MD, REVISION)
    read = reading.counters
    assert (read["ended/success"], read["ended/error"], read["ended/withdrawn"]) == (1.0, 1.0, 0.0)
    assert (read["gain"], read["loss"]) == (12.0, 3.0)
    assert (read["requests"], read["failed"]) == (2.0, 1.0), "opening is not what users wait for"
    assert (read["within/0.005"], read["within/0.25"], read["within/inf"]) == (1.0, 2.0, 2.0)
    assert reading.possible
    assert isinstance(metrics.registry, CollectorRegistry)
    assert reading.process == pytest.approx(time.time(), abs=60)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<html>hello</html>",
        server().render().decode().replace(REVISION, OTHER),
        server().render().decode().replace(names.METRIC_SERVER_STARTED, "learnloop_other"),
        server().render().decode().replace('verb="act"} 1.0', 'verb="act"} NaN'),
        server().render().decode().replace('verb="act"} 1.0', 'verb="act"} +Inf'),
        server().render().decode().replace('verb="act"} 1.0', 'verb="act"} much'),
    ],
    ids=["empty", "html", "another arm", "an older image", "nan", "infinite", "no number"],
)
def test_an_exposition_without_the_arms_counters_is_unusable(text: str) -> None:
    with pytest.raises(CountersUnusable):
        parse(text, MD, REVISION)


@pytest.mark.parametrize("unit", ["learnloop_", 'learnloop_a{b="', 'learnloop_a{b="c"} ', "learnloop_a{" + "b" * 600])
def test_no_text_costs_more_than_a_walk_over_it(unit: str) -> None:
    def work(size: int) -> int:
        text = (unit * size)[:size]
        began = time.thread_time_ns()
        with pytest.raises(CountersUnusable):
            parse(text, MD, REVISION)
        return time.thread_time_ns() - began + 1

    # Quadratic work would be sixteen times as much whenever it is looked at; a busy machine is not busy each time.
    assert any(work(MAX_ANSWER) < 9 * work(MAX_ANSWER // 4) for _ in range(20))


def pod(name: str, address: str = "127.0.0.1", *, ready: str = "True", deleted: bool = False) -> dict[str, object]:
    mesh = {"annotations": {names.ANNOTATION_PORT: "15020"}}
    metadata = {"name": name, **mesh, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}
    return {"metadata": metadata, "status": {"podIP": address, "conditions": [{"type": "Ready", "status": ready}]}}


def test_only_ready_pods_that_stay_are_asked() -> None:
    pods = [pod("b"), pod("a"), pod("c", ready="False"), pod("d", deleted=True), pod("e", "")]
    assert [target.name for target in targets(pods)] == ["a", "b"]
    assert [targets([pod("a", address)])[0].port for address in ("127.0.0.1", "10.0.0.7")] == [15020, None]
    assert len(targets([pod(f"p{index}") for index in range(100)])) == 64


@given(
    st.lists(
        st.tuples(
            st.sampled_from([names.METRIC_EPISODES_ENDED, names.METRIC_SERVER_STARTED, names.METRIC_REQUEST_ERRORS]),
            st.text(max_size=60),
        ).map("".join)
        | st.text(max_size=60)
        | st.just(names.METRIC_EPISODES_ENDED + '{a="' * 400)
    )
)
def test_whatever_a_stranger_answers_is_a_reading_or_unusable(lines: list[str]) -> None:
    text = "\n".join([*lines, server().render().decode()])
    try:
        reading = parse(text, MD, REVISION)
    except CountersUnusable:
        return
    assert reading.possible


class Stranger:
    """A pod that answers whatever a test wants."""

    def __init__(self) -> None:
        self.handler: Handler = self.healthy
        self.metrics = server()
        self.requests = 0

    async def healthy(self, _: web.Request) -> web.StreamResponse:
        return web.Response(body=self.metrics.render())

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests += 1
        return await self.handler(request)


@pytest.fixture
async def stranger(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stranger]:
    stranger_ = Stranger()
    app = web.Application()
    app.router.add_get("/metrics", stranger_.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setattr(counter_reader.names, "PORT_PROBES", runner.addresses[0][1])
    yield stranger_
    await runner.cleanup()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_lane_reader, "EVERY", 0.05)


@pytest.fixture
async def reader() -> AsyncIterator[CounterReader]:
    made = CounterReader(seconds=60)
    yield made
    await made.close()


class Hole:
    """Pods at addresses of their own that take every connection and never say anything."""

    def __init__(self, *addresses: str) -> None:
        self.pods = tuple(Target(address, address) for address in addresses)
        self.requests, self.over = asyncio.Queue[None](), asyncio.Event()

    async def swallow(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.put_nowait(None)
        await self.over.wait()
        writer.close()


@pytest.fixture
async def hole(stranger: Stranger) -> AsyncIterator[Hole]:
    silent = Hole(*(f"127.0.1.{index}" for index in range(1, 121)))
    listening = await asyncio.start_server(silent.swallow, [pod.address for pod in silent.pods], names.PORT_PROBES)
    yield silent
    silent.over.set()
    listening.close()


HERE = (Target("p-0", "127.0.0.1"),)
NOWHERE = Target("p-1", "127.255.255.254")
QUESTIONS = Questions(tuple(of_analysis(Analysis())), 10.0)


async def why(reader: CounterReader) -> PodUnreachable | CountersUnusable:
    """Why the one pod gave no reading."""
    answers = await reader.read_all(HERE, MD, MD, REVISION)
    assert not answers.readings
    return answers.errors["p-0"]


async def test_each_pod_of_an_arm_is_read_or_it_is_said_why_not(stranger: Stranger, reader: CounterReader) -> None:
    answers = await reader.read_all((*HERE, NOWHERE), MD, MD, REVISION)
    assert set(answers.readings) == {"p-0"}
    assert isinstance(answers.errors["p-1"], PodUnreachable)
    assert "p-1" in str(answers.errors["p-1"])


async def test_a_pod_that_hangs_is_given_up(stranger: Stranger) -> None:
    given_up = asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        await given_up.wait()
        return web.Response()

    stranger.handler = hang
    impatient = CounterReader(seconds=0.3)
    assert isinstance(await why(impatient), PodUnreachable)
    given_up.set()
    await impatient.close()


async def test_a_pod_that_redirects_or_talks_without_end_is_given_up(stranger: Stranger, reader: CounterReader) -> None:
    async def redirect(_: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/metrics")

    async def talk(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x" * (MAX_ANSWER + 1))

    for handler in (redirect, talk):
        stranger.handler, stranger.requests = handler, 0
        assert isinstance(await why(reader), CountersUnusable)
        assert stranger.requests == 1


async def test_black_holes_of_another_namespace_do_not_keep_an_arm_waiting(stranger, hole, reader):
    lane, results = FastLaneReader(reader, OperatorMetrics(), utc_now), asyncio.Queue[None]()
    subject = WatchedArm(REVISION, rfc3339(utc_now()), 10, QUESTIONS)

    async def counted(request: web.Request) -> web.StreamResponse:
        results.put_nowait(None)
        return await stranger.healthy(request)

    stranger.handler = counted
    for name in ("one", "other"):
        half = hole.pods[:60] if name == "one" else hole.pods[60:]
        following = asyncio.create_task(lane.follow(("theirs", name), (subject,), {REVISION: half}))
        await asyncio.wait_for(hole.requests.get(), 90)
        following.cancel()
    running = asyncio.create_task(lane.run(lambda *_: None, lambda: True))
    try:
        await asyncio.wait_for(hole.requests.get(), 90)
        await lane.follow(("mine", MD), (subject,), {REVISION: HERE})
        for _ in range(3):
            await asyncio.wait_for(results.get(), 90)
    finally:
        running.cancel()
