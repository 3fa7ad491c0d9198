"""Ready means ready: with the streams, not with a server that would have them."""

import asyncio
import shutil
from os import getpid
from pathlib import Path

import pytest

from learnloop_dataplane.config import Config
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.nats.connection import Bus

from ..conftest import START_SECONDS, Api, Nats, eventually, running, settings


async def test_a_server_that_has_no_room_for_the_streams_is_not_ready(tmp_path: Path, port: int) -> None:
    server = Nats(tmp_path / "nats", port).start()
    bus = Bus(
        Config.model_validate(settings("postgresql://nowhere", tmp_path, nats_url=server.url, stream_max_bytes=10**15))
    )
    bus.start()

    await eventually(lambda: "insufficient storage" in bus.problem)
    assert await bus.js.account_info(), "JetStream itself answers"
    with pytest.raises(Unavailable):
        await bus.ping()
    await bus.close()
    server.kill()


async def test_a_stream_that_somebody_deleted_is_missed(tmp_path: Path, nats: Nats) -> None:
    bus = Bus(Config.model_validate(settings("postgresql://nowhere", tmp_path, nats_url=nats.url)))
    bus.start()
    await asyncio.wait_for(bus.ready.wait(), START_SECONDS)
    await bus.ping()
    await bus.js.delete_stream("RL_REWARDS")
    with pytest.raises(Unavailable, match="the NATS stream RL_REWARDS"):
        await bus.ping()
    await bus.look()
    await bus.ping()
    await bus.close()


async def test_the_service_puts_a_stream_back_that_nobody_reads(dsn, tmp_path, nats, monkeypatch):
    monkeypatch.setattr("learnloop_dataplane.assembly.experience_parts.STORES_SECONDS", 0.1)
    async with running(**settings(dsn, tmp_path, nats_url=nats.url)) as api:
        await api.bus.js.delete_stream("RL_REWARDS")

        async def ready() -> bool:
            return (await api.client.get("/readyz")).status_code == 200

        await eventually(ready)
        assert await api.bus.js.stream_info("RL_REWARDS")


async def test_an_artifact_store_that_is_away_is_said_and_stops_nothing_else(dsn, tmp_path, monkeypatch):
    monkeypatch.setattr("learnloop_dataplane.assembly.experience_parts.STORES_SECONDS", 0.1)
    blobs = tmp_path / f"blobs-{getpid()}"
    async with running(**settings(dsn, blobs)) as api:
        assert await degraded(api) == {}
        shutil.rmtree(blobs)

        async def state() -> bool:
            return "its directory is gone" in (await degraded(api)).get("artifact store", "")

        await eventually(state)
        blobs.mkdir()

        async def well() -> bool:
            return await degraded(api) == {}

        await eventually(well)


async def degraded(api: Api):
    return (await api.call("GET", "/readyz"))["degraded"]
