"""The schema is made once, by whichever process comes first; the service works on no other and as no mightier login."""

import asyncio
import os

import pytest
from alembic.script import ScriptDirectory

from learnloop_dataplane.postgres.database import HEAD, Database
from learnloop_dataplane.postgres.logins import alembic_config, migrate

from ..conftest import START_SECONDS, eventually, new_database, superuser


def test_the_service_knows_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(alembic_config()).get_current_head() == HEAD


async def test_processes_that_start_together_migrate_once(postgres) -> None:
    dsn = new_database(postgres, f"together_{os.getpid()}")
    await asyncio.gather(*(migrate(dsn) for _ in range(3)))
    async with superuser(dsn) as connection:
        assert await connection.fetchval("SELECT count(*) FROM alembic_version") == 1


async def test_a_version_before_that_of_the_database_says_so_and_changes_nothing(postgres) -> None:
    dsn = new_database(postgres, f"newer_{os.getpid()}")
    await migrate(dsn)
    async with superuser(dsn) as connection:
        await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    db = Database(dsn)
    db.start()

    await eventually(lambda: "schema 9999, and this version knows" in db.problem)
    assert not db.ready.is_set()
    await db.close()


async def test_a_database_of_a_version_before_the_first_release_says_what_it_lacks(postgres) -> None:
    dsn = new_database(postgres, f"unreleased_{os.getpid()}")
    await migrate(dsn)
    async with superuser(dsn) as connection:
        await connection.execute("ALTER TABLE training_runs DROP COLUMN update_order")
    db = Database(dsn)
    db.start()

    await eventually(lambda: "lacks training_runs.update_order: a version before the first release" in db.problem)
    assert not db.ready.is_set()
    async with superuser(dsn) as connection:
        await connection.execute("ALTER TABLE training_runs ADD COLUMN update_order jsonb")
    await asyncio.wait_for(db.ready.wait(), START_SECONDS)
    await db.close()


async def test_a_database_that_comes_late_is_waited_for(postgres) -> None:
    name = f"late_{os.getpid()}"
    db = Database(str(postgres.get_uri(name)))
    db.start()

    await eventually(lambda: name in db.problem)
    assert not db.ready.is_set()
    new_database(postgres, name)
    await asyncio.wait_for(db.ready.wait(), START_SECONDS)
    await db.close()


async def test_a_login_above_the_rules_is_refused(postgres) -> None:
    dsn = new_database(postgres, f"above_{os.getpid()}")
    await migrate(dsn)
    async with superuser(dsn) as connection:
        name = f"mighty_{os.getpid()}"
        await connection.execute(f"CREATE ROLE {name} LOGIN BYPASSRLS")
        await connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}")
    db = Database(dsn.replace("postgres:@", f"{name}:@"))
    db.start()

    await eventually(lambda: "bypasses row-level security" in db.problem)
    await db.close()


async def test_an_ordinary_owner_without_createrole_is_bound_by_the_policies(postgres) -> None:
    name = f"plain_{os.getpid()}"
    dsn = new_database(postgres, name)
    async with superuser(dsn) as connection:
        await connection.execute("CREATE EXTENSION vector")
        await connection.execute(f"CREATE ROLE {name} LOGIN; ALTER DATABASE {name} OWNER TO {name}")
        await connection.execute(f"ALTER SCHEMA public OWNER TO {name}")
    db = Database(dsn.replace("postgres:@", f"{name}:@"))
    db.start()
    await asyncio.wait_for(db.ready.wait(), START_SECONDS)
    async with db.tenant("red") as connection:
        await connection.execute("INSERT INTO artifacts (namespace, sha256, size_bytes) VALUES ('red', 'x', 1)")
    async with db.tenant("blue") as connection:
        assert await connection.fetchval("SELECT current_user") == name
        assert await connection.fetchval("SELECT count(*) FROM artifacts") == 0
    await db.close()


@pytest.mark.parametrize("killed", [1, 2])
async def test_connections_cut_by_the_server_are_replaced(postgres, killed: int) -> None:
    dsn = new_database(postgres, f"cut_{killed}_{os.getpid()}")
    db = Database(dsn, pool_size=2)
    db.start()
    await asyncio.wait_for(db.ready.wait(), START_SECONDS)
    async with superuser(dsn) as connection:
        for _ in range(killed):
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            await asyncio.sleep(0.05)
            await db.ping()
    await db.close()
