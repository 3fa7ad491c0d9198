"""The migrations write what the models say, from nothing, by several processes at once, killed or not."""

import asyncio
import os
import re
from typing import Any

import asyncpg
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import create_async_engine
from sqlmodel import SQLModel

from learnloop_dataplane.postgres import experience_tables, row_level_security
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.migrate import alembic_config, migrate
from learnloop_dataplane.postgres.schema_facts import HEAD

from ..conftest import START_SECONDS, eventually, new_database, superuser

QUERIES = (
    "SELECT table_name, column_name, data_type, udt_name, is_nullable, column_default, is_identity"
    " FROM information_schema.columns WHERE table_schema = 'public'",
    "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace",
    "SELECT tablename, policyname, cmd, qual, with_check FROM pg_policies WHERE schemaname = 'public'",
    "SELECT relname, relrowsecurity, relforcerowsecurity FROM pg_class WHERE relkind IN ('r', 'p')"
    " AND relnamespace = 'public'::regnamespace",
    "SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "SELECT attrelid::regclass::text, attname, attstorage, format_type(atttypid, atttypmod) FROM pg_attribute"
    " WHERE attrelid = ANY(SELECT oid FROM pg_class"
    " WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p'))",
)

_ELSEWHERE = re.compile("alembic|^training_transitions_")  # partitions are of their time, not of the schema


async def catalog(dsn: str) -> list[set[Any]]:
    """Everything that PostgreSQL knows about the tables of a database."""
    async with superuser(dsn) as connection:
        answers = [await connection.fetch(query) for query in QUERIES]
    return [{tuple(row) for row in rows if not _ELSEWHERE.search(str(row[0]))} for rows in answers]


async def test_upgrade_equals_create_all(postgres: Any) -> None:
    assert set(SQLModel.metadata.tables) >= {experience_tables.Agent.__tablename__, *row_level_security.UNSCOPED}
    upgraded, created = (new_database(postgres, f"{kind}_{os.getpid()}") for kind in ("upgraded", "created"))
    await migrate(upgraded)

    async def connect() -> Any:
        return await asyncpg.connect(created)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("CREATE EXTENSION vector")
        await connection.run_sync(SQLModel.metadata.create_all)
    await engine.dispose()
    for left, right in zip(await catalog(upgraded), await catalog(created), strict=True):
        assert left == right


def test_the_service_knows_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(alembic_config()).get_current_head() == HEAD


async def test_processes_that_start_together_migrate_once(postgres: Any) -> None:
    dsn = new_database(postgres, f"together_{os.getpid()}")
    await asyncio.gather(*(migrate(dsn) for _ in range(3)))
    async with superuser(dsn) as connection:
        assert await connection.fetchval("SELECT count(*) FROM alembic_version") == 1


async def test_a_version_before_that_of_the_database_says_so_and_changes_nothing(postgres: Any) -> None:
    dsn = new_database(postgres, f"newer_{os.getpid()}")
    await migrate(dsn)
    async with superuser(dsn) as connection:
        await connection.execute("UPDATE alembic_version SET version_num = '9999'")
    db = Database(dsn)
    db.start()

    async def noticed() -> bool:
        return "schema 9999, and this version knows" in db.problem

    await eventually(noticed)
    assert not db.ready.is_set()
    await db.close()


async def test_a_database_that_comes_late_is_waited_for(postgres: Any) -> None:
    name = f"late_{os.getpid()}"
    db = Database(str(postgres.get_uri(name)))
    db.start()

    async def noticed() -> bool:
        return name in db.problem

    await eventually(noticed)
    assert not db.ready.is_set()
    new_database(postgres, name)
    await asyncio.wait_for(db.ready.wait(), START_SECONDS)
    await db.close()


async def test_a_login_above_the_rules_is_refused(postgres: Any) -> None:
    dsn = new_database(postgres, f"above_{os.getpid()}")
    await migrate(dsn)
    async with superuser(dsn) as connection:
        name = f"mighty_{os.getpid()}"
        await connection.execute(f"CREATE ROLE {name} LOGIN BYPASSRLS")
        await connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}")
    db = Database(dsn.replace("postgres:@", f"{name}:@"))
    db.start()

    async def refused() -> bool:
        return "bypasses row-level security" in db.problem

    await eventually(refused)
    await db.close()


async def test_an_ordinary_owner_without_createrole_is_bound_by_the_policies(postgres: Any) -> None:
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
async def test_connections_cut_by_the_server_are_replaced(postgres: Any, killed: int) -> None:
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
