"""Messages that cannot be stored are refused with the reason, and do not delay others."""

import asyncio
import json
import logging
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import nats as nats_client
import pytest

from learnloop_dataplane.experience.nats_workers import STREAM_DURABLE
from learnloop_dataplane.nats.connection import TRAJECTORIES
from testing.messages.fuzzed_events import fuzzed

from ..conftest import START_SECONDS, Api, Nats, eventually, running, settings, superuser, trajectory

SUBJECT = "agent.rl.trajectory.v1"
FUZZED = 2000


@pytest.fixture
async def api(dsn: str, tmp_path: Path, nats: Nats) -> AsyncIterator[Api]:
    async with running(**settings(dsn, tmp_path, nats_url=nats.url)) as started:
        yield started


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "learnloop_dataplane.experience.nats_workers")
    return caplog


async def _publish(url: str, *messages: tuple[str, bytes]) -> None:
    client = await nats_client.connect(url, connect_timeout=20)
    js = client.jetstream(timeout=START_SECONDS)
    for start in range(0, len(messages), 200):
        await asyncio.gather(*(js.publish(subject, body) for subject, body in messages[start : start + 200]))
    await client.close()


def _codes(log: pytest.LogCaptureFixture) -> list[str]:
    """The code of each refusal in the log, with a reason."""
    lines = (re.match(r"refused RL_[A-Z]+/\d+ \((\w+)\): .{9}", record.message) for record in log.records)
    return [line[1] for line in lines if line]


async def _settled(api: Api) -> bool:
    info = await api.bus.js.consumer_info(TRAJECTORIES, STREAM_DURABLE)
    return info.num_pending == 0 and info.num_ack_pending == 0


async def _stored(dsn: str, namespace: str) -> Counter[str]:
    async with superuser(dsn) as connection:
        rows = await connection.fetch("SELECT trajectory_id FROM trajectories WHERE namespace = $1", namespace)
    return Counter(row["trajectory_id"] for row in rows)


async def test_two_thousand_fuzzed_events_are_explained_and_the_good_ones_between_arrive_once(api, nats, dsn, log):
    rng, messages = random.Random(7), []
    for number in range(FUZZED):
        messages.append((f"{SUBJECT}.team-f.fuzzed", fuzzed(rng, number)))
        if number % 20 == 0:
            good = json.dumps(trajectory(f"good{number}", "fuzzed")).encode()
            messages += [(f"{SUBJECT}.team-f.fuzzed", good)] * 2
    await _publish(nats.url, *messages)
    await eventually(lambda: _settled(api))
    codes = _codes(log)
    assert len(codes) == FUZZED
    assert set(codes) == {"json", "schema", "agent"}
    assert await _stored(dsn, "team-f") == {f"good{number}": 1 for number in range(0, FUZZED, 20)}


async def test_what_is_wrong_with_the_database_is_no_episodes_fault_and_it_is_stored_when_that_is_mended(
    dsn: str, tmp_path: Path, nats: Nats, log: pytest.LogCaptureFixture
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
            assert await _stored(dsn, "team-m") == {}
        finally:
            async with superuser(dsn) as connection:
                await connection.execute("ALTER TABLE somewhere_else RENAME TO training_transitions")

        async def stored() -> bool:
            return await _stored(dsn, "team-m") == {"m1": 1}

        await eventually(stored)
        assert _codes(log) == []


async def test_the_log_says_why_and_nothing_of_a_refused_message_stays(api, nats, log):
    leaky = {**trajectory("l1", "liar"), "task": "ask anna@example.org", "extra": {"password": "hunter2"}}
    await _publish(
        nats.url,
        (f"{SUBJECT}.team-x.liar", b"{not json, but password=hunter2"),
        (f"{SUBJECT}.team-x.liar", json.dumps(trajectory("l2", "somebody-else")).encode()),
        (f"{SUBJECT}.team-x.liar", json.dumps(leaky).encode()),
        ("agent.rl.training.request.v1.team-x.liar", b'{"nothing": 1}'),
        (SUBJECT, json.dumps(trajectory("nowhere")).encode()),
    )

    await eventually(lambda: len(_codes(log)) == 5)
    text = "\n".join(record.message for record in log.records)
    assert "(agent): \"agent: the body says 'somebody-else', the subject says 'liar'; " in text
    assert "(schema): 'request_id: Field required; add it and publish it under a new Nats-Msg-Id; " in text
    assert "hunter2" not in text
    assert "anna@" not in text

    async def gone() -> bool:
        streams = [
            await api.bus.js.stream_info(name, subjects_filter=">") for name in ("RL_TRAJECTORIES", "RL_TRAINING")
        ]
        subjects = {subject for info in streams for subject in info.state.subjects or {}}
        return SUBJECT not in subjects and not any(".team-x." in subject for subject in subjects)

    await eventually(gone)
