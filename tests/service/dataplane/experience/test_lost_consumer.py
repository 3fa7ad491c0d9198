"""A consumer that was lost begins where duplicates can still be known, and not with the start of its stream."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import nats as nats_client

from learnloop_dataplane.experience.nats_workers import STREAM_DURABLE
from learnloop_dataplane.nats.consumer import consumer_config, pull_forever
from learnloop_dataplane.nats.streams import REWARDS, TRAJECTORIES

from ..conftest import START_SECONDS, Nats, eventually, running, settings, trajectory

SUBJECT = "agent.rl.reward.v1.team-begin.walker"


async def test_a_consumer_made_anew_reads_nothing_from_before(dsn: str, tmp_path: Path, nats: Nats) -> None:
    read: list[int] = []

    async def handle(messages: Any) -> None:
        for message in messages:
            await message.ack()
            read.append(message.metadata.sequence.stream)

    async with running(**settings(dsn, tmp_path, nats_url=nats.url)) as api:
        bus = api.bus
        places = [(await bus.js.publish(SUBJECT, b"{}")).seq for _ in range(3)]
        arrived = (await bus.js.get_msg(REWARDS, places[1])).time
        config = consumer_config("begins", [SUBJECT], 2.0)

        async def has_read(*sequences: int) -> None:
            async def all_of_them() -> bool:
                return len(read) >= len(sequences)

            await eventually(all_of_them)
            assert read == list(sequences)

        reading = asyncio.create_task(pull_forever(bus, REWARDS, config, lambda: arrived, handle))
        await has_read(*places[1:])
        await bus.js.delete_consumer(REWARDS, "begins")
        await has_read(*places[1:], *places[1:])
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


async def test_the_service_begins_with_what_retention_has_not_deleted(dsn: str, tmp_path: Path, nats: Nats) -> None:
    client = await nats_client.connect(nats.url, connect_timeout=20)
    js = client.jetstream(timeout=START_SECONDS)
    with suppress(nats_client.js.errors.NotFoundError):  # of another test
        await js.delete_consumer(TRAJECTORIES, STREAM_DURABLE)
    earliest = datetime.now(UTC) - timedelta(days=7)
    begins = []
    for identity in ("b1", "b2"):  # where it begins cannot be changed: the second start must not try to
        async with running(**settings(dsn, tmp_path, nats_url=nats.url, retention_days=7)) as api:
            await api.call("POST", "/api/v1/trajectories", 202, json=trajectory(identity, identity))

            async def stored(replica: Any = api, agent: str = identity) -> bool:
                async with replica.db.tenant("team-a") as connection:
                    query = "SELECT count(*) FROM trajectories WHERE namespace = 'team-a' AND agent_id = $1"
                    return bool(await connection.fetchval(query, agent))

            await eventually(stored)
            begins.append((await js.consumer_info(TRAJECTORIES, STREAM_DURABLE)).config.opt_start_time)
    await client.close()
    assert begins[0] == begins[1]
    assert earliest <= begins[0] <= datetime.now(UTC) - timedelta(days=7)
