"""What the SDK records reaches a real NATS JetStream once."""

import asyncio
from collections.abc import Callable
from typing import Any

import nats
import pytest

from learnloop_api.wire.trajectory import Trajectory
from learnloop_sdk import Learnloop
from testing.servers.nats_server import Nats

from .conftest import STREAM, stored

Make = Callable[..., Learnloop]


async def play(loop: Learnloop, count: int = 1, **metadata: str) -> None:
    for _ in range(count):
        async with loop.episode("t", external=True, metadata=metadata) as episode:
            episode.record(1, 1.0, terminated=True, observation=[0.0, 1.0])


async def test_trajectories_go_to_jetstream_under_their_namespace_and_id(learn: Make, broker: Nats) -> None:
    loop = learn(nats_url=broker.url, namespace="team-a")
    await play(loop, 20)
    assert await loop.flush(60) == 0
    messages = await stored(broker)
    assert len(messages) == 20
    for subject, message_id, payload in messages:
        assert subject == "agent.rl.trajectory.v1.team-a.cart"
        assert message_id == f"team-a/{Trajectory.model_validate_json(payload).trajectory_id}"


async def test_nothing_is_lost_or_doubled_while_nats_is_killed_and_restarted(learn: Make, broker: Nats) -> None:
    loop = learn(nats_url=broker.url)
    await play(loop, 5)
    await loop.flush(60)
    broker.kill()
    await play(loop, 10)
    await asyncio.sleep(0.3)
    assert loop.recorder is not None
    assert loop.recorder.pending == 10
    await asyncio.to_thread(broker.start)
    await play(loop, 5)
    assert await loop.flush(60) == 0
    identifiers = [message_id for _, message_id, _ in await stored(broker)]
    assert len(identifiers) == len(set(identifiers)) == 20


async def test_a_trajectory_larger_than_nats_takes_goes_by_http(learn: Make, broker: Nats, data_plane: Any) -> None:
    loop = learn(nats_url=broker.url, data_url=data_plane.url)
    async with loop.episode("t", external=True) as episode:
        episode.record("a", 0.0, observation="x" * 1_100_000)
    assert await loop.flush(60) == 0
    assert len(data_plane.bodies()) == 1


async def test_a_large_trajectory_keeps_none_of_its_batch_from_jetstream(
    learn: Make, broker: Nats, data_plane: Any
) -> None:
    loop = learn(nats_url=broker.url, data_url=data_plane.url)
    for length in (1, 1_100_000, 1, 1):
        async with loop.episode("t", external=True) as episode:
            episode.record("a", 0.0, observation="x" * length)
    assert await loop.flush(60) == 0
    assert len(await stored(broker)) == 3
    assert len(data_plane.bodies()) == loop.counters.trajectories_delivered_by_http == 1
    assert loop.counters.trajectories_delivered == 4


async def test_a_subject_no_stream_takes_is_said_and_the_trajectories_wait(
    learn: Make, broker: Nats, caplog: pytest.LogCaptureFixture
) -> None:
    client = await nats.connect(broker.url)
    await client.jetstream().delete_stream(STREAM)
    await client.close()
    loop = learn(nats_url=broker.url)
    await play(loop, 3)
    assert await loop.flush(0.5) == 3
    assert "3 wait to be delivered: NATS: acknowledged by no stream" in caplog.text
