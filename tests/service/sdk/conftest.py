"""A real broker with the stream of trajectories, and Learnloops whose episodes are played elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import StreamConfig

from learnloop_sdk import Learnloop
from testing.servers.nats_server import Nats
from testing.servers.ports import held_port
from testing.servers.recording_server import DataPlane

STREAM = "TRAJECTORIES"


@pytest.fixture
def free_port() -> Iterator[int]:
    """Dead until a server of this test listens on it, as often as it likes."""
    with held_port() as port:
        yield port


@pytest.fixture
async def broker(tmp_path: Path, free_port: int) -> AsyncIterator[Nats]:
    """Holds the stream as the data plane makes it."""
    server = Nats(tmp_path / "jetstream", free_port, max_payload="1MB")
    await asyncio.to_thread(server.start)
    client = await nats.connect(server.url, connect_timeout=20)
    config = StreamConfig(name=STREAM, subjects=["agent.rl.trajectory.v1.>"], duplicate_window=120)
    await client.jetstream(timeout=60).add_stream(config)
    await client.close()
    yield server
    server.kill()


async def stored(broker: Nats) -> list[tuple[str, str, bytes]]:
    """(subject, Nats-Msg-Id, payload) of everything in the stream."""
    client = await nats.connect(broker.url, connect_timeout=20)
    stream = client.jetstream(timeout=60)
    count = (await stream.stream_info(STREAM)).state.messages
    found = [await stream.get_msg(STREAM, seq) for seq in range(1, count + 1)]
    await client.close()
    return [(str(m.subject), (m.headers or {})["Nats-Msg-Id"], m.data or b"") for m in found]


@pytest.fixture
def data_plane() -> Iterator[DataPlane]:
    server = DataPlane()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
async def learn() -> AsyncIterator[Callable[..., Learnloop]]:
    """Makes Learnloops of agent cart; closes them."""
    made: list[Learnloop] = []

    def make(**options: Any) -> Learnloop:
        made.append(Learnloop("cart", **{"timeout": 60.0, "retry_seconds": 0.3} | options))
        return made[-1]

    yield make
    for loop in made:
        await loop.close(0)
