"""The fate of a batch in which one message makes PostgreSQL fail."""

import asyncio
import json
from unittest.mock import AsyncMock, Mock

import asyncpg
import pytest

from learnloop_dataplane.experience import nats_workers
from learnloop_dataplane.experience.nats_workers import RequestConsumer, TrajectoryConsumer, consume
from learnloop_dataplane.experience.trajectories import StoredTrajectories

STEP = {"observation": [0.0], "action": 0, "log_prob": -0.7, "reward": 1.0}


def message(identity: str, namespace: str = "team"):
    body = {
        "trajectory_id": identity,
        "agent": "cart",
        "task": "balance",
        "episode_id": identity,
        "policy_revision": "3f9a2c81",
        "started_at": "2026-01-01T00:00:00Z",
        "ended_at": "2026-01-01T00:00:01Z",
        "outcome": {"status": "completed", "episode_return": 1.0, "success": True},
        "steps": [STEP],
    }
    subject = f"agent.rl.trajectory.v1.{namespace}.cart"
    return Mock(subject=subject, data=json.dumps(body).encode(), ack=AsyncMock(), nak=AsyncMock())


def consumer(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> tuple:
    """One whose database fails for every batch with an episode named `bad` in it."""
    refusals = Mock(settle=AsyncMock())
    made = TrajectoryConsumer(Mock(), Mock(), Mock(), refusals, Mock())

    async def persist(_: str, group) -> StoredTrajectories:
        ids = {trajectory.trajectory_id for _, trajectory in group}
        if "bad" in ids:
            raise fault
        return StoredTrajectories(ids, set())

    monkeypatch.setattr(made, "_persist", persist)
    return made, refusals


async def test_a_value_that_no_column_takes_is_refused_and_its_neighbours_are_stored(monkeypatch):
    fault = asyncpg.DataError("out of range")
    fault.detail = "Failing row contains (what people wrote)."
    made, refusals = consumer(monkeypatch, fault)
    batch = [message(name) for name in ("a", "bad", "b")]
    await made.handle(batch)
    assert [one.ack.await_count for one in batch] == [1, 0, 1]
    [(refused, why)] = [call.args for call in refusals.settle.await_args_list]
    assert (refused, why.code, why.reason) == (batch[1], "storage", "PostgreSQL refuses it: out of range")


@pytest.mark.parametrize("fault", [asyncpg.InternalServerError("cache lookup failed"), ValueError("a bug")])
async def test_what_is_not_its_values_fault_is_delivered_again_and_its_neighbours_are_stored(monkeypatch, fault):
    made, refusals = consumer(monkeypatch, fault)
    batch = [message(name) for name in ("a", "bad", "b")]
    await made.handle(batch)
    assert [one.ack.await_count for one in batch] == [1, 0, 1]
    assert [one.nak.await_count for one in batch] == [0, 1, 0]
    refusals.settle.assert_not_awaited()


async def test_nor_is_another_namespaces_batch_left_lying_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = consumer(monkeypatch, asyncpg.InternalServerError("cache lookup failed"))
    batch = [message("bad"), message("a", "another-team"), message("b", "another-team")]
    await made.handle(batch)
    assert [one.ack.await_count for one in batch] == [0, 1, 1]


async def test_a_request_that_cannot_be_stored_yet_is_delivered_again_and_its_neighbours_are_stored(monkeypatch):
    requests = RequestConsumer(Mock(), Mock(settle=AsyncMock()))
    monkeypatch.setattr(requests, "_keep", AsyncMock(side_effect=[asyncpg.DiskFullError("no space left"), None]))
    batch = [
        Mock(subject=f"agent.rl.training.request.v1.team.{name}", ack=AsyncMock(), nak=AsyncMock()) for name in "ab"
    ]
    await requests.handle(batch)
    assert [(one.ack.await_count, one.nak.await_count) for one in batch] == [(0, 1), (1, 0)]


async def test_a_pass_of_reading_ends_so_that_what_failed_before_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats_workers, "PASS_SECONDS", 0.1)

    async def fetch(*_: object, **__: object) -> list:
        await asyncio.sleep(0)
        return [message("a")]

    reader = Mock(fetch=fetch, unsubscribe=AsyncMock())
    js = Mock(add_consumer=AsyncMock(), pull_subscribe_bind=AsyncMock(return_value=reader))
    handle = AsyncMock()
    async with asyncio.timeout(5):
        await consume(Mock(ready=Mock(wait=AsyncMock()), ensure=AsyncMock(), js=js), "STREAM", Mock(), handle)
    assert handle.await_count > 1
    reader.unsubscribe.assert_awaited_once()
