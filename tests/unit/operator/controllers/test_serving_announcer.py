"""The data plane is told what serves: each change once, in order, whenever it answers, and nobody waits for it."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web

from learnloop_api.wire.deployment import ModelDeployed
from learnloop_operator.adapters.data_plane import DataPlane
from learnloop_operator.adapters.kube.errors import NotLeading
from learnloop_operator.controllers.background import serving_announcer as herald_module
from learnloop_operator.controllers.background.serving_announcer import ServingAnnouncer
from learnloop_operator.core.plan import Call
from testing.simulation.rollout_cluster import BETTER, Cluster, uri


def _call(deployment: str, revision: str, at: str = "12:00") -> Call:
    body = {"revision": revision, "deployed_at": f"2026-01-31T{at}:00Z"}
    return Call("PUT", f"/api/v1/models/{deployment}/deployed", body)


async def test_changes_wait_for_the_data_plane_and_arrive_in_order_once(wire: Any) -> None:
    wire.answer(503, {"error": {"message": "PostgreSQL is away"}})
    wire.answer(422, {"error": {"message": "no"}})
    done = asyncio.Event()

    async def accept(_: web.Request) -> web.Response:
        if len(wire.asked) == 5:
            done.set()
        return web.json_response({})

    wire.script.append(accept)
    client = DataPlane(wire.url, "/nonexistent")
    herald = ServingAnnouncer(client)
    running = asyncio.create_task(herald.run())
    for call in (_call("a", "r1"), _call("a", "r1", "12:01"), _call("b", "r1"), _call("a", "r2"), _call("a", "r1")):
        herald.say("ns", call)
    await asyncio.wait_for(done.wait(), 60)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await client.close()
    told = [(path.split("/")[4], json.loads(body)["revision"]) for _, path, body in wire.asked]
    assert told == [("a", "r1"), ("a", "r1"), ("b", "r1"), ("a", "r2"), ("a", "r1")], "the first was tried twice"


async def test_nothing_is_told_while_another_process_may_lead_and_all_of_it_later(
    wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(herald_module, "FIRST_PAUSE", 0.01)
    refused, done = asyncio.Event(), asyncio.Event()
    leading: list[bool] = []

    def guard() -> float:
        if not leading:
            refused.set()
            raise NotLeading("no")
        return 5.0

    async def accept(_: web.Request) -> web.Response:
        done.set()
        return web.json_response({})

    wire.script.append(accept)
    client = DataPlane(wire.url, "/nonexistent", guard=guard)
    herald = ServingAnnouncer(client)
    running = asyncio.create_task(herald.run())
    herald.say("ns", _call("a", "r1"))
    await asyncio.wait_for(refused.wait(), 60)
    assert wire.asked == []
    leading.append(True)
    await asyncio.wait_for(done.wait(), 60)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await client.close()


def test_a_rollout_tells_of_the_model_that_serves_and_of_a_canary_only_when_it_is_promoted() -> None:
    cluster = Cluster()
    assert cluster.reconcile().serving is None, "nothing serves yet"
    cluster.run(10)
    cluster.wish(1, BETTER)
    told: list[ModelDeployed] = []
    for _ in range(600):
        call = cluster.reconcile().serving
        assert call is not None
        event = ModelDeployed.model_validate(call.body)
        if not told or told[-1].revision != event.revision:
            told.append(event)
        if len(told) == 2:
            break
        cluster.run(1)
    assert [item.uri for item in told] == [uri(0), uri(1)]
    assert told[1].previous_revision == told[0].revision
    assert told[1].verdict.startswith(f"promoted {told[1].revision}")
