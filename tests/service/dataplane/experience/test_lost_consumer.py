"""A consumer that somebody deleted is made again, and nothing that waited is lost."""

from pathlib import Path

from learnloop_dataplane.experience.nats_workers import STREAM_DURABLE
from learnloop_dataplane.nats.connection import TRAJECTORIES

from ..conftest import Nats, eventually, running, settings, trajectory


async def test_a_consumer_that_was_deleted_is_made_again_and_goes_on(dsn: str, tmp_path: Path, nats: Nats) -> None:
    async with running(**settings(dsn, tmp_path, nats_url=nats.url)) as api:
        await api.call("PUT", "/api/v1/agents/lost", json={})
        for number in range(3):
            await api.bus.js.delete_consumer(TRAJECTORIES, STREAM_DURABLE)
            await api.call("POST", "/api/v1/trajectories", 202, json=trajectory(f"l{number}", "lost"))

            async def stored(wanted: int = number + 1) -> bool:
                return bool((await api.call("GET", "/api/v1/agents/lost/stats"))["trajectories"] == wanted)

            await eventually(stored)
