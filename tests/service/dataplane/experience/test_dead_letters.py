"""What can never be stored: kept with the reason, and never in the way of what can."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats as nats_client
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from learnloop_dataplane.experience.nats_workers import STREAM_DURABLE
from learnloop_dataplane.nats.consumer import MAX_DELIVER, consumer_config
from learnloop_dataplane.nats.streams import DEAD_LETTERS, TRAJECTORIES, ensure_streams
from testing.messages.fuzzed_events import fuzzed

from ..conftest import START_SECONDS, Api, Nats, eventually, running, settings, superuser, trajectory

SUBJECT = "agent.rl.trajectory.v1"
FUZZED = 2000


@pytest.fixture
async def api(dsn: str, tmp_path: Path, nats: Nats) -> AsyncIterator[Api]:
    async with running(**settings(dsn, tmp_path, nats_url=nats.url)) as started:
        yield started


async def _publish(url: str, *messages: tuple[str, bytes]) -> None:
    client = await nats_client.connect(url, connect_timeout=20)
    js = client.jetstream(timeout=START_SECONDS)
    for start in range(0, len(messages), 200):
        await asyncio.gather(*(js.publish(subject, body) for subject, body in messages[start : start + 200]))
    await client.close()


async def _letters(api: Api, namespace: str) -> list[Any]:
    js = api.bus.js
    config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, ack_policy=AckPolicy.NONE, inactive_threshold=60)
    reader = await js.pull_subscribe(f"agent.rl.deadletter.v1.{namespace}.>", stream=DEAD_LETTERS, config=config)
    found: list[Any] = []
    there = (await reader.consumer_info()).num_pending
    while len(found) < there:  # what was sent to this reader and not yet read is no longer pending
        found += await reader.fetch(min(there - len(found), 500), timeout=START_SECONDS)
    return found


async def _stored(dsn: str, namespace: str) -> Counter[str]:
    async with superuser(dsn) as connection:
        rows = await connection.fetch("SELECT trajectory_id FROM trajectories WHERE namespace = $1", namespace)
    return Counter(row["trajectory_id"] for row in rows)


async def test_two_thousand_fuzzed_events_are_explained_and_the_good_ones_between_arrive_once(
    api: Api, nats: Nats, dsn: str
) -> None:
    # Two namespaces: each keeps its newest thousand letters of a kind.
    rng, teams = random.Random(7), ("team-f", "team-g")
    messages = []
    for number in range(FUZZED):
        subject = f"{SUBJECT}.{teams[number % 2]}.fuzzed"
        messages.append((subject, fuzzed(rng, number)))
        if number % 20 < 2:
            good = json.dumps(trajectory(f"good{number}", "fuzzed")).encode()
            messages += [(subject, good)] * 2
    await _publish(nats.url, *messages)

    async def settled() -> bool:
        info = await api.bus.js.consumer_info(TRAJECTORIES, STREAM_DURABLE)
        return info.num_pending == 0 and info.num_ack_pending == 0

    await eventually(settled)
    letters = [letter for team in teams for letter in await _letters(api, team)]
    assert len(letters) == FUZZED
    assert all(letter.headers["Learnloop-Reason"] not in ("", "-") for letter in letters)
    assert set(Counter(letter.headers["Learnloop-Code"] for letter in letters)) == {"json", "schema", "agent"}
    for index, team in enumerate(teams):
        assert await _stored(dsn, team) == {f"good{number}": 1 for number in range(index, FUZZED, 20)}


async def test_what_is_wrong_with_the_database_is_no_episodes_fault_and_it_is_stored_when_that_is_mended(
    dsn: str, tmp_path: Path, nats: Nats
) -> None:
    async with running(**settings(dsn, tmp_path, nats_url=nats.url, ack_wait_seconds=1)) as api:
        async with superuser(dsn) as connection:
            await connection.execute("ALTER TABLE training_transitions RENAME TO somewhere_else")
        try:
            await _publish(nats.url, (f"{SUBJECT}.team-m.patient", json.dumps(trajectory("m1", "patient")).encode()))

            async def tried_again() -> bool:
                info = await api.bus.js.consumer_info(TRAJECTORIES, STREAM_DURABLE)
                return bool(info.num_redelivered)

            await eventually(tried_again)
            assert await _letters(api, "team-m") == []
            assert await _stored(dsn, "team-m") == {}
        finally:
            async with superuser(dsn) as connection:
                await connection.execute("ALTER TABLE somewhere_else RENAME TO training_transitions")

        async def stored() -> bool:
            return await _stored(dsn, "team-m") == {"m1": 1}

        await eventually(stored)
        assert await _letters(api, "team-m") == []


async def test_the_letter_says_why_and_where_and_holds_no_secret(api: Api, nats: Nats) -> None:
    leaky = {**trajectory("l1", "liar"), "task": "ask anna@example.org", "extra": {"password": "hunter2"}}
    await _publish(
        nats.url,
        (f"{SUBJECT}.team-x.liar", b"{not json, but password=hunter2"),
        (f"{SUBJECT}.team-x.liar", json.dumps(trajectory("l2", "somebody-else")).encode()),
        (f"{SUBJECT}.team-x.liar", json.dumps(leaky).encode()),
        ("agent.rl.training.request.v1.team-x.liar", b'{"nothing": 1}'),
        (SUBJECT, json.dumps(trajectory("nowhere")).encode()),
    )

    async def arrived() -> list[Any]:
        found = await _letters(api, "*")
        mine = [letter for letter in found if letter.subject.split(".")[4] in ("team-x", "-")]
        return mine if len(mine) == 5 else []

    letters = await eventually(arrived)
    told = {(x.subject.split(".")[4], x.subject.split(".")[5], x.headers["Learnloop-Code"]): x for x in letters}
    assert set(told) == {
        ("team-x", "trajectory", "json"),
        ("team-x", "trajectory", "agent"),
        ("team-x", "trajectory", "schema"),
        ("team-x", "training-request", "schema"),
        ("-", "trajectory", "subject"),
    }
    agent = told["team-x", "trajectory", "agent"].headers
    assert agent["Learnloop-Reason"].startswith("agent: the body says 'somebody-else', the subject says 'liar'; ")
    assert agent["Learnloop-Subject"] == f"{SUBJECT}.team-x.liar"
    request = told["team-x", "training-request", "schema"].headers["Learnloop-Reason"]
    assert request.startswith("request_id: Field required; add it and publish it under a new Nats-Msg-Id; ")
    everything = b" ".join(letter.data for letter in letters)
    assert b"hunter2" not in everything
    assert b"anna@" not in everything
    assert json.loads(told["team-x", "trajectory", "schema"].data)["trajectory_id"] == "l1"


async def test_a_message_that_kills_its_readers_is_put_aside_unread(
    dsn: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, port: int
) -> None:
    server = Nats(tmp_path_factory.mktemp("nats-poison"), port).start()
    client = await nats_client.connect(server.url, connect_timeout=20)
    js = client.jetstream(timeout=START_SECONDS)
    await ensure_streams(js, 64 * 2**20)
    await js.publish(f"{SUBJECT}.team-p.deadly", json.dumps(trajectory("deadly", "deadly")).encode())
    await js.add_consumer(TRAJECTORIES, consumer_config(STREAM_DURABLE, [], 2.0))
    reader = await js.pull_subscribe_bind(durable=STREAM_DURABLE, stream=TRAJECTORIES)
    for _ in range(MAX_DELIVER - 1):
        await (await reader.fetch(1, timeout=START_SECONDS))[0].nak()
    await client.close()
    async with running(**settings(dsn, tmp_path, nats_url=server.url)) as api:
        letter = (await eventually(lambda: _letters(api, "team-p")))[0]
        assert letter.headers["Learnloop-Code"] == "poison"
        assert await _stored(dsn, "team-p") == {}
        # Its reader has been mended since: published again, it is stored.
        await _publish(server.url, (letter.headers["Learnloop-Subject"], letter.data))
        assert await eventually(lambda: _stored(dsn, "team-p")) == {"deadly": 1}
    server.kill()
