"""Ready means ready: with the streams, not with a server that would have them."""

import shutil
from os import getpid
from pathlib import Path
from typing import Any

import pytest

from learnloop_memory.config import Config
from learnloop_memory.errors import Unavailable
from learnloop_memory.experience.bus import Bus

from .conftest import Api, Nats, eventually, running, settings


async def test_a_server_that_has_no_room_for_the_streams_is_not_ready(dsn: str, tmp_path: Path, nats: Nats) -> None:
    bus = Bus(Config.model_validate(settings(dsn, tmp_path, nats_url=nats.url, stream_max_bytes=10**15)))
    bus.start()

    async def refused() -> bool:
        return "insufficient storage" in bus.problem

    await eventually(refused)
    assert await bus.js.account_info(), "JetStream itself answers"
    with pytest.raises(Unavailable):
        await bus.ping()
    await bus.close()


async def test_a_stream_that_somebody_deleted_is_missed_and_put_back(
    dsn: str, tmp_path: Path, nats: Nats, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(**settings(dsn, tmp_path, nats_url=nats.url)) as api:
        await api.call("GET", "/readyz")
        await api.service.bus.js.delete_stream("RL_REWARDS")  # which nobody here reads
        answer = await api.call("GET", "/readyz", 503)
        assert "the NATS stream RL_REWARDS" in answer["problems"]["nats"]
    monkeypatch.setattr("learnloop_memory.service.STORES_SECONDS", 0.1)
    async with running(**settings(dsn, tmp_path, nats_url=nats.url)) as api:
        await api.call("GET", "/readyz")
        await api.service.bus.js.delete_stream("RL_REWARDS")

        async def ready() -> bool:
            return (await api.client.get("/readyz")).status_code == 200

        await eventually(ready)


async def test_an_artifact_store_that_is_away_is_said_and_stops_nothing_else(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learnloop_memory.service.STORES_SECONDS", 0.1)
    blobs = tmp_path / f"blobs-{getpid()}"
    async with running(**settings(dsn, blobs)) as api:
        assert await degraded(api) == {}
        shutil.rmtree(blobs)

        async def said() -> bool:
            return "its directory is gone" in (await degraded(api)).get("artifact store", "")

        await eventually(said)
        (blobs / ".spool").mkdir(parents=True)

        async def well() -> bool:
            return await degraded(api) == {}

        await eventually(well)


async def degraded(api: Api) -> Any:
    return (await api.call("GET", "/readyz"))["degraded"]
