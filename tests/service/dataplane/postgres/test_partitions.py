"""Steps lie in partitions by time: a day goes as a whole, and no writer waits for that."""

import asyncio
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from learnloop_dataplane.erasure.retention import Retention
from learnloop_dataplane.postgres import partitions
from learnloop_dataplane.postgres.migrate import migrate
from learnloop_dataplane.postgres.partitions import FIRST_DAYS

from ..conftest import Api, eventually, new_database, running, settings, superuser, trajectory

EPISODE = """
WITH made AS (INSERT INTO trajectories (namespace, trajectory_id, agent_id, task, episode_id, policy_revision,
        started_at, ended_at, steps, status, episode_return, outcome_values, retrieval_ids, labels)
    SELECT 'team-a', $1 || i, 'busy', '', 'e', 'r', now(), now(), 1, 'completed', 1, '{}', '[]', '{}'
    FROM generate_series(1, $2) i RETURNING namespace, trajectory_id, received_at)
INSERT INTO training_transitions (namespace, trajectory_id, received_at, steps)
SELECT namespace, trajectory_id, received_at, '[1]' FROM made
"""
DAY = timedelta(days=1)


@pytest.mark.parametrize("days", [-400, 400])
async def test_the_first_partition_ends_by_the_databases_clock_whatever_the_process_believes(
    postgres: Any, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    wrong = time.time() + days * 86_400
    monkeypatch.setattr(time, "time", lambda: wrong)
    dsn = new_database(postgres, f"wrong_clock_{abs(days)}_{days > 0}_{os.getpid()}".lower())
    await migrate(dsn)
    async with superuser(dsn) as connection:
        [first] = await partitions.ranges(connection, partitions.STEPS)
        today = await connection.fetchval("SELECT now()")
    assert first.lower is None
    assert timedelta(0) < first.upper - today <= timedelta(days=FIRST_DAYS)


async def test_an_episode_and_its_steps_go_together(postgres: Any) -> None:
    dsn = new_database(postgres, f"together_gone_{os.getpid()}")
    await migrate(dsn)
    async with superuser(dsn) as connection:
        await connection.execute(EPISODE, "e", 3)
        await connection.execute("DELETE FROM trajectories WHERE trajectory_id = 'e1'")
        assert await connection.fetchval("SELECT count(*) FROM training_transitions") == 2


async def test_replicas_that_start_together_make_each_partition_once(postgres: Any) -> None:
    dsn = new_database(postgres, f"ahead_{os.getpid()}")
    await migrate(dsn)
    made = await asyncio.gather(*(partitions.make_ahead(dsn, 30) for _ in range(3)))
    async with superuser(dsn) as connection:
        parts = await partitions.ranges(connection, partitions.STEPS)
        assert sum(map(len, made)) == len(parts) - 1
        assert all(one.upper == after.lower for one, after in pairwise(parts))
        assert parts[-1].upper >= datetime.now(UTC) + 14 * DAY
        sealed = "SELECT relrowsecurity AND relforcerowsecurity FROM pg_class WHERE relname = $1"
        assert all([await connection.fetchval(sealed, one.name) for one in parts])


async def _aged(dsn: str, namespace: str, days: int) -> None:
    async with superuser(dsn) as connection:
        for table in ("trajectories", "training_transitions"):
            change = f"UPDATE {table} SET received_at = received_at + make_interval(days => $2) WHERE namespace = $1"
            await connection.execute(change, namespace, days)


async def _left(dsn: str, namespace: str) -> tuple[int, int]:
    async with superuser(dsn) as connection:
        tables = ("trajectories", "training_transitions")
        counts = [
            await connection.fetchval(f"SELECT count(*) FROM {table} WHERE namespace = $1", namespace)
            for table in tables
        ]
    return counts[0], counts[1]


@pytest.fixture
def own(migrated: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """A database for one test: these move the clock, and drop what others write to."""
    return migrated(f"own_{abs(hash(request.node.name))}_{os.getpid()}")


async def test_a_day_goes_as_a_whole_when_all_of_it_is_old(own: str, tmp_path: Path) -> None:
    dsn = own
    async with running(**settings(dsn, tmp_path)) as api:
        for namespace in ("one", "two"):
            await api.call("POST", "/api/v1/trajectories", 202, namespace, json=trajectory("a"))
            await eventually(lambda name=namespace: _both(dsn, name))
            await _aged(dsn, namespace, 9)  # behind the first partition, which has no beginning
        async with superuser(dsn) as connection:
            parts = await partitions.ranges(connection, partitions.STEPS)
        moment = datetime.now(UTC) + 9 * DAY
        day = next(one for one in parts if one.lower and one.lower <= moment < one.upper)
        retention = Retention(api.db, 30, dsn=dsn)
        await retention.run(day.upper + 30 * DAY - timedelta(seconds=1))
        assert await _left(dsn, "one") == (1, 1), "a second of it is not old yet"
        async with superuser(dsn) as watcher:
            await retention.run(day.upper + 30 * DAY)
            assert await _left(dsn, "one") == await _left(dsn, "two") == (0, 0)
            assert await watcher.fetchval("SELECT to_regclass($1)", day.name) is None


class Ahead(datetime):
    """The clock of a machine that nobody sets."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.now(tz) + 400 * DAY


async def test_a_replica_whose_clock_is_wrong_drops_nothing_early_and_makes_no_partition_of_years(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(**settings(own, tmp_path)) as api:
        await api.call("POST", "/api/v1/trajectories", 202, "one", json=trajectory("a"))
        await eventually(lambda: _both(own, "one"))
        async with superuser(own) as connection:
            before = await partitions.ranges(connection, partitions.STEPS)
        for module in ("erasure.retention", "postgres.partitions"):
            monkeypatch.setattr(f"learnloop_dataplane.{module}.datetime", Ahead)
        await partitions.make_ahead(own, 30)
        await Retention(api.db, 30, dsn=own).run()
        assert await _left(own, "one") == (1, 1)
        async with superuser(own) as connection:
            assert await partitions.ranges(connection, partitions.STEPS) == before


async def _both(dsn: str, namespace: str) -> bool:
    return await _left(dsn, namespace) == (1, 1)


async def test_an_episode_that_the_warehouse_lacks_keeps_its_whole_day(own: str, tmp_path: Path) -> None:
    async with running(**settings(own, tmp_path)) as api:
        await _shipped_in_part(own, api)


async def _shipped_in_part(dsn: str, api: Api) -> None:
    for name in ("there", "not-yet"):
        await api.call("POST", "/api/v1/trajectories", 202, "shipped", json=trajectory(name))
    await eventually(lambda: _stored(dsn, 2))
    await _aged(dsn, "shipped", 10)
    async with superuser(dsn) as connection:
        await connection.execute("UPDATE trajectories SET warehoused = (trajectory_id = 'there')")
    later = datetime.now(UTC) + 42 * DAY
    retention = Retention(api.db, 30, dsn=dsn, warehouse=True)
    await retention.run(later)
    assert await _left(dsn, "shipped") == (2, 2)
    async with superuser(dsn) as connection:
        await connection.execute("UPDATE trajectories SET warehoused = true")
    await retention.run(later)
    assert await _left(dsn, "shipped") == (0, 0)


async def _stored(dsn: str, count: int) -> bool:
    return await _left(dsn, "shipped") == (count, count)


async def test_a_partition_in_use_is_asked_for_briefly_and_again(
    postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(partitions, "LOCK_MILLISECONDS", 50)
    dsn = new_database(postgres, f"inuse_{os.getpid()}")
    await migrate(dsn)
    (name, *_) = await partitions.make_ahead(dsn, 30)
    async with superuser(dsn) as reader, superuser(dsn) as writer:
        await reader.execute("BEGIN; SELECT count(*) FROM training_transitions")
        dropping = asyncio.create_task(partitions.drop(dsn, [name]))
        for number in range(5):  # a writer is let in between
            await asyncio.wait_for(writer.execute(EPISODE, f"through-{number}", 1), 5)
        assert not dropping.done()
        await reader.execute("COMMIT")
        await dropping
        assert await writer.fetchval("SELECT to_regclass($1)", name) is None
        monkeypatch.setattr(partitions, "TRIES", 2)
        (second, *_) = [one.name for one in await partitions.ranges(writer, partitions.STEPS) if one.lower]
        await reader.execute("BEGIN; SELECT count(*) FROM training_transitions")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await partitions.drop(dsn, [second])
