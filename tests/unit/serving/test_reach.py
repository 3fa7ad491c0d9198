"""A canary is drawn from its first answer on, and not before."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from learnloop_api.wire.routing import Arm
from learnloop_serving import forwarding as reaching
from learnloop_serving.forwarding import Reach
from learnloop_serving.policy_loader import UniformPolicy
from learnloop_serving.routing_table_in_force import RoutingState
from learnloop_serving.server_metrics import Metrics
from testing.servers.policy_servers import CANARY, STABLE, LiveServer, table
from testing.servers.ports import held_port
from testing.waiting import until_true


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "POLL_SECONDS", 0.005)


@asynccontextmanager
async def knocking(routing: RoutingState) -> AsyncIterator[Reach]:
    reach = Reach(routing)
    task = asyncio.create_task(reach.run())
    try:
        yield reach
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def listing(url: str, weight: int = 20) -> tuple[RoutingState, Arm]:
    routing = RoutingState("cart", Metrics("cart", STABLE))
    assert routing.offer(table((STABLE, "stable", 100 - weight, "http://x"), (CANARY, "canary", weight, url)), "test")
    return routing, routing.table.arms[1]


def both(canary: Arm) -> str:
    return table((STABLE, "stable", 100 - canary.weight), (CANARY, "canary", canary.weight, canary.url))


async def test_a_canary_is_reached_once_something_is_ready_at_its_address(start: Callable[..., LiveServer]) -> None:
    with held_port() as port:
        routing, canary = listing(f"http://127.0.0.1:{port}")
        async with knocking(routing) as reach:
            await asyncio.sleep(0.05)
            assert not reach.reached(canary), "no server listens there"
            server = await asyncio.to_thread(start, revision=CANARY, port=port, policy=None)
            await asyncio.sleep(0.05)
            assert not reach.reached(canary), "it listens and is not ready"
            server.route(both(canary))
            server.arm.install(UniformPolicy(2, 4), 0.0)
            await until_true(lambda: reach.reached(canary))


async def test_a_canary_that_fails_after_its_first_answer_is_drawn_all_the_same(start):
    server = await asyncio.to_thread(start, revision=CANARY)
    routing, canary = listing(server.url)
    server.route(both(canary))
    async with knocking(routing) as reach:
        await until_true(lambda: reach.reached(canary))
        server.arm.draining = True
        await asyncio.sleep(0.05)
        assert reach.reached(canary)


async def test_a_canary_that_left_the_table_has_to_answer_anew(start: Callable[..., LiveServer]) -> None:
    server = await asyncio.to_thread(start, revision=CANARY)
    routing, canary = listing(server.url)
    server.route(both(canary))
    async with knocking(routing) as reach:
        await until_true(lambda: reach.reached(canary))
        assert routing.offer(table((STABLE, "stable", 100)), "test")
        await until_true(lambda: not reach.reached(canary))


async def test_an_address_that_is_none_costs_the_canary_its_episodes_and_nothing_else() -> None:
    routing, canary = listing("http://[not an address")
    async with knocking(routing) as reach:
        await asyncio.sleep(0.05)
        assert not reach.reached(canary)
        assert routing.offer(table((STABLE, "stable", 100)), "test")
        await asyncio.sleep(0.05)
