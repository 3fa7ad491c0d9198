"""The data plane learns of served and rolled-back models: each change once, in order, without a wait."""

import asyncio
import json
from contextlib import suppress

from aiohttp import web

from learnloop_api.wire.deployment import ModelDeployed
from learnloop_operator.core.plan import Announcement, Call
from learnloop_operator.data_plane_client import DataPlane
from learnloop_operator.kube.errors import NotLeading
from learnloop_operator.reconcile import apply_plan as announcer_module
from learnloop_operator.reconcile.apply_plan import Announcer
from testing.simulation.rollout_cluster import BAD, BETTER, Cluster, uri


def _call(deployment: str, revision: str, at: str = "12:00") -> Announcement:
    body = {"revision": revision, "deployed_at": f"2026-01-31T{at}:00Z"}
    return Announcement(Call("PUT", f"/api/v1/models/{deployment}/deployed", body), revision)


async def test_changes_wait_for_the_data_plane_and_arrive_in_order_once(wire) -> None:
    wire.answer(503, {"error": {"message": "PostgreSQL is away"}})
    wire.answer(422, {"error": {"message": "no"}})
    done = asyncio.Event()

    async def accept(_: web.Request) -> web.Response:
        if len(wire.requests) == 5:
            done.set()
        return web.json_response({})

    wire.script.append(accept)
    client = DataPlane(wire.url, "/nonexistent")
    announcer = Announcer(client)
    running = asyncio.create_task(announcer.run())
    for call in (_call("a", "r1"), _call("a", "r1", "12:01"), _call("b", "r1"), _call("a", "r2"), _call("a", "r1")):
        announcer.say("ns", call)
    await asyncio.wait_for(done.wait(), 60)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await client.close()
    revisions = [(path.split("/")[4], json.loads(body)["revision"]) for _, path, body in wire.requests]
    assert revisions == [("a", "r1"), ("a", "r1"), ("b", "r1"), ("a", "r2"), ("a", "r1")], "the first was tried twice"


async def test_nothing_is_told_while_another_process_may_lead_and_all_of_it_later(wire, monkeypatch):
    monkeypatch.setattr(announcer_module, "FIRST_PAUSE", 0.01)
    refused, done = asyncio.Event(), asyncio.Event()
    leading: list[bool] = []

    def guard() -> None:
        if not leading:
            refused.set()
            raise NotLeading("no")
        return

    async def accept(_: web.Request) -> web.Response:
        done.set()
        return web.json_response({})

    wire.script.append(accept)
    client = DataPlane(wire.url, "/nonexistent", guard=guard)
    announcer = Announcer(client)
    running = asyncio.create_task(announcer.run())
    announcer.say("ns", _call("a", "r1"))
    await asyncio.wait_for(refused.wait(), 60)
    assert wire.requests == []
    leading.append(True)
    await asyncio.wait_for(done.wait(), 60)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await client.close()


def test_a_rollout_tells_of_the_model_that_serves_and_of_a_canary_only_when_it_is_promoted() -> None:
    cluster = Cluster()
    assert cluster.reconcile().announcements == (), "nothing serves yet"
    cluster.run(10)
    cluster.wish(1, BETTER)
    announced: list[ModelDeployed] = []
    for _ in range(600):
        event = ModelDeployed.model_validate(cluster.reconcile().announcements[0].call.body)
        if not announced or announced[-1].revision != event.revision:
            announced.append(event)
        if len(announced) == 2:
            break
        cluster.run(1)
    assert [item.uri for item in announced] == [uri(0), uri(1)]
    assert announced[1].previous_revision == announced[0].revision
    assert announced[1].verdict.startswith(f"promoted {announced[1].revision}")


def test_a_rollback_is_told_for_an_hour_with_the_sentence_and_what_serves_now() -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.wish(1, BAD)
    for _ in range(600):
        cluster.run(1)
        if cluster.status["phase"] == "RolledBack":
            break
    news = {item.call.path: item for item in cluster.reconcile().announcements}
    body = news["/api/v1/models/md/rolled-back"]
    event = ModelDeployed.model_validate(body.call.body)
    blocked = cluster.status["blockedRevision"]
    assert (event.event, event.revision, event.reason) == ("rolled_back", blocked["revision"], blocked["reason"])
    assert event.verdict == blocked["message"]
    assert event.previous_revision == cluster.status["stable"]["revision"]
    assert [step.weight for step in event.schedule] == event.canary_weights
    again = next(item for item in cluster.reconcile().announcements if item.call.path == body.call.path)
    assert again == body, "the same news every time"
    cluster.tick(3601)
    assert "/api/v1/models/md/rolled-back" not in {item.call.path for item in cluster.reconcile().announcements}
