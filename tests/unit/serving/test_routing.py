import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from learnloop_serving.routing_table_in_force import ConfigMapWatch, RoutingState
from learnloop_serving.server_metrics import Metrics
from testing.servers.policy_servers import CANARY, STABLE, settings, table
from testing.waiting import until_true

STABLE_ONLY = table((STABLE, "stable", 100))
WITH_CANARY = table((STABLE, "stable", 90), (CANARY, "canary", 10), generation=2)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("cart", STABLE)


@pytest.fixture
def state(metrics: Metrics) -> RoutingState:
    return RoutingState("cart", metrics)


def broken(metrics: Metrics, kind: str) -> float:
    labels = {"model_deployment": "cart", "revision": STABLE, "kind": kind}
    return metrics.registry.get_sample_value("learnloop_routing_errors_total", labels) or 0.0


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        table((STABLE, "stable", 99)),
        table((STABLE, "stable", 100), model_deployment="other"),
        table((STABLE, "stable", 100), surprise=1),
    ],
)
def test_a_broken_table_keeps_the_last_good_one(state: RoutingState, metrics: Metrics, text: str | None) -> None:
    assert state.offer(WITH_CANARY, "test")
    assert not state.offer(text, "test")
    assert state.lists(CANARY)
    assert broken(metrics, "table") == 1


class ApiServer:
    """The answers of the API's watch protocol this client must understand, on a real socket."""

    def __init__(self) -> None:
        self.text: str | None = STABLE_ONLY
        self.requests: list[web.Request] = []
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    def event(self, kind: str) -> bytes:
        data = {} if self.text is None else {"routing.json": self.text}
        return json.dumps({"type": kind, "object": {"data": data}}).encode() + b"\n"

    async def watch(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        line: bytes | None = self.event("ADDED")
        await (answer := web.StreamResponse()).prepare(request)
        while line is not None:
            half = len(line) // 2  # events do not come in chunks of their own
            await answer.write(line[:half])
            await answer.write(line[half:])
            line = await self.lines.get()
        return answer


@pytest.fixture
async def api() -> AsyncIterator[tuple[ApiServer, str]]:
    api, app = ApiServer(), web.Application()
    app.router.add_get("/api/v1/namespaces/default/configmaps", api.watch)
    async with TestServer(app) as server:
        yield api, str(server.make_url(""))


@pytest.fixture
async def watching(
    api: tuple[ApiServer, str], tmp_path: Path, state: RoutingState, metrics: Metrics
) -> AsyncIterator[ApiServer]:
    (tmp_path / "token").write_text("first")
    config = settings().model_copy(update={"kubernetes_url": api[1], "service_account": tmp_path})
    task: Awaitable[None] = asyncio.create_task(ConfigMapWatch(config, state, metrics).follow())
    await until_true(lambda: state.table is not None)
    yield api[0]
    task.cancel()


async def test_a_watch_that_ends_is_followed_by_another_with_a_fresh_token(watching, tmp_path, state, metrics):
    (tmp_path / "token").write_text("second")
    watching.text = WITH_CANARY
    watching.lines.put_nowait(None)
    await until_true(lambda: state.lists(CANARY))
    assert watching.requests[-1].headers["authorization"] == "Bearer second"
    assert broken(metrics, "watch") == 0


async def test_an_expired_version_and_a_deleted_map_are_survived(watching: ApiServer, state: RoutingState) -> None:
    watching.lines.put_nowait(watching.event("DELETED"))
    watching.text = WITH_CANARY
    watching.lines.put_nowait(b'{"type":"ERROR","object":{"code":410,"message":"too old"}}\n')
    await until_true(lambda: state.lists(CANARY))


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"null",
        b"7",
        b'"text"',
        b"[]",
        b"{}",
        b'{"type":"BOOKMARK"}',
        b'{"type":"BOOKMARK","object":{"metadata":null}}',
        b'{"type":"ERROR","object":"gone"}',
    ],
)
async def test_nonsense_from_the_watch_is_counted_and_read_afresh(watching, state, metrics, line):
    watching.text = WITH_CANARY
    watching.lines.put_nowait(line + b"\n")
    await until_true(lambda: state.lists(CANARY))
    assert broken(metrics, "watch") >= 1


async def test_a_connection_that_breaks_inside_the_event_loop_is_opened_again(
    api: tuple[ApiServer, str], tmp_path: Path, state: RoutingState, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings().model_copy(update={"kubernetes_url": api[1], "service_account": tmp_path})
    watch = ConfigMapWatch(config, state, metrics)
    client, broken_connections = watch._client, [True]

    def connect() -> httpx.AsyncClient:
        if broken_connections:
            broken_connections.pop()
            raise RuntimeError("unable to perform operation on <TCPTransport>; the handler is closed")  # uvloop's
        return client()

    monkeypatch.setattr(watch, "_client", connect)
    task = asyncio.create_task(watch.follow())
    await until_true(lambda: state.lists(STABLE))
    task.cancel()


async def test_a_table_that_is_broken_in_the_cluster_does_not_end_the_watch(watching, state, metrics):
    watching.text = None
    watching.lines.put_nowait(watching.event("MODIFIED"))
    await until_true(lambda: broken(metrics, "table") == 1)
    watching.text = WITH_CANARY
    watching.lines.put_nowait(watching.event("MODIFIED"))
    await until_true(lambda: state.lists(CANARY))


def mortal(seconds: float) -> str:
    """A table with a canary that expires so many seconds from now, by this machine's clock."""
    over = datetime.now(UTC) + timedelta(seconds=seconds)
    return table((STABLE, "stable", 90), (CANARY, "canary", 10), generation=2, expires_at=over.isoformat())


@pytest.mark.parametrize("ahead", [-900.0, 0.0, 900.0])
def test_the_dead_man_switch_runs_by_the_api_servers_clock(state: RoutingState, ahead: float) -> None:
    state.clock.answered(state.clock.ask(), format_datetime(datetime.now(UTC) + timedelta(seconds=ahead), usegmt=True))
    state.offer(mortal(ahead + 60), "test")
    assert not state.expired
    state.offer(mortal(ahead - 60), "test")
    assert state.expired
