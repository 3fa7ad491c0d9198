"""A full stream, on the real NATS and PostgreSQL: nothing acknowledged is lost, others go on, it ends by itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import nats as nats_client
import orjson
import pytest
from nats.js.errors import APIError

from learnloop_api import names
from learnloop_dataplane.config import Config
from learnloop_dataplane.nats.connection import FULL, TRAJECTORIES, Bus
from testing.servers.nats_server import Nats

from ..conftest import Api, eventually, running, settings, superuser, trajectory

SIZE = 2 * 2**20


@pytest.fixture
async def full(dsn: str, nats: Nats, tmp_path: Path) -> AsyncIterator[Api]:
    """A service whose stream has room for some fifty episodes of `large`."""
    async with running(**settings(dsn, tmp_path, nats_url=nats.url, stream_max_bytes=SIZE)) as api:
        yield api


def large(identity: str, agent: str = "walker") -> dict:
    step = {"observation": [0.125] * 64, "action": 1, "log_prob": -0.7, "reward": 1.0}
    return trajectory(identity, agent, steps=[step] * 80)


async def publish(api: Api, namespace: str, identity: str) -> bool:
    """On NATS; False: refused for want of room."""
    body, subject = orjson.dumps(large(identity)), f"{names.SUBJECT_TRAJECTORY}.{namespace}.walker"
    try:
        await api.bus.js.publish(subject, body, headers={"Nats-Msg-Id": f"{namespace}/{identity}"})
    except APIError as error:
        if error.description != FULL:
            raise
        return False
    return True


async def post(api: Api, namespace: str, identity: str) -> httpx.Response:
    headers = {"x-learnloop-namespace": namespace}
    return await api.client.post("/api/v1/trajectories", json=large(identity), headers=headers)


async def stored(dsn: str, namespace: str) -> set[str]:
    async with superuser(dsn) as connection:
        rows = await connection.fetch("SELECT trajectory_id FROM trajectories WHERE namespace = $1", namespace)
    return {row["trajectory_id"] for row in rows}


@asynccontextmanager
async def stuck(dsn: str, namespace: str) -> AsyncIterator[None]:
    """Nothing of this namespace can be stored meanwhile, so the one reader of the stream stands still."""
    async with superuser(dsn) as connection:
        await connection.execute("SELECT pg_advisory_lock(hashtextextended('erasure/' || $1, 0))", namespace)
        yield


async def flood(api: Api, namespace: str) -> set[str]:
    """Publishes on NATS until that is refused; what was acknowledged."""
    taken: set[str] = set()
    while await publish(api, namespace, f"{namespace}-{len(taken)}"):
        taken.add(f"{namespace}-{len(taken)}")
    return taken


async def test_a_full_stream_loses_nothing_lets_others_publish_and_recovers_by_itself(full: Api, dsn: str) -> None:
    async with stuck(dsn, "flood"):
        taken = await flood(full, "flood")
        assert len(taken) > 20

        async def state():
            return (await full.call("GET", "/readyz"))["degraded"].get("streams")

        assert f"{TRAJECTORIES}: {len(taken)} unread messages" in await eventually(state)
        refused = await post(full, "flood", "one-more")
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert f"{len(taken)} messages of this namespace wait" in refused.json()["error"]["message"]
        others = [await post(full, "quiet", f"quiet-{index}") for index in range(5)]
        assert {answer.status_code for answer in others} == {202}
        assert await stored(dsn, "quiet") == {f"quiet-{index}" for index in range(5)}
        again = await post(full, "quiet", "quiet-0")
        assert again.json()["duplicate"] is True
        metrics = (await full.call("GET", "/metrics")).text
        assert f'learnloop_stream_unread_messages{{stream="{TRAJECTORIES}"}} {len(taken)}.0' in metrics
        assert 'learnloop_stream_refusals_total{namespace="flood"} 1.0' in metrics

    async def recovered() -> bool:
        return await stored(dsn, "flood") == taken and not (await full.call("GET", "/readyz"))["degraded"]

    assert await eventually(recovered)
    assert (await post(full, "flood", "one-more")).status_code == 202


async def test_what_was_stored_leaves_the_queue_so_that_it_never_fills_with_it(full: Api, dsn: str) -> None:
    wanted = {f"long-{index}" for index in range(200)}
    for identity in sorted(wanted):

        async def taken(identity: str = identity) -> bool:  # a busy machine reads later than this writes
            return (await post(full, "long", identity)).status_code == 202

        assert await eventually(taken)

    async def settled() -> bool:
        state = (await full.bus.js.stream_info(TRAJECTORIES)).state
        return await stored(dsn, "long") >= wanted and state.messages == 0

    assert await eventually(settled)


async def test_a_stream_that_cannot_become_a_queue_is_named_with_what_to_do(dsn, tmp_path, port):
    server = Nats(tmp_path / "nats", port).start()
    try:
        client = await nats_client.connect(server.url)
        await client.jetstream().add_stream(name=TRAJECTORIES, subjects=[f"{names.SUBJECT_TRAJECTORY}.>"])
        await client.close()
        bus = Bus(Config.model_validate(settings(dsn, tmp_path, nats_url=server.url)))
        bus.start()

        async def explained() -> bool:
            return (
                f"delete it when nothing in it is needed, and it is made again: nats stream rm {TRAJECTORIES}"
                in bus.problem
            )

        assert await eventually(explained)
        assert not bus.ready.is_set()
        await bus.close()
    finally:
        server.kill()
