"""Brings the database to the newest schema. Safe to run from several processes at once."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import asyncpg
from alembic import command
from alembic.config import Config as AlembicConfig
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from learnloop_dataplane.postgres.schema_facts import SERVICE_ROLE

# Any constant will do; it only has to be the same in every process.
LOCK = 0x6C6F6F70
ASK_SECONDS = 0.1
LOCK_MILLISECONDS = 1000
"""How long a change of a table waits for it, and with it all who want to write there."""
STAND_BACK_SECONDS = 1.0
LOCK_TRIES = 300  # more than somebody's dump of a table takes, usually
PASSES = frozenset({"55P03", "40P01"})
"""Codes of a lock that was not to be had, and of a deadlock that this session was chosen to end."""
LONGEST_SECONDS = 6 * 3600
"""For one statement: an index of a large table may take hours; a connection that broke unnoticed ends at last."""
log = logging.getLogger(__name__)


def alembic_config(connection: Connection | None = None) -> AlembicConfig:
    """Alembic's configuration without an ini file."""
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("recursive_version_locations", "true")
    config.attributes["connection"] = connection
    return config


async def migrate(dsn: str, revision: str = "head") -> None:
    """Upgrades beside whoever reads and writes, a transaction for each revision; one process at a time.

    A process or a server that goes away leaves whole revisions behind, and of the one in hand at most what its next
    try passes over: columns and indexes that nobody uses yet.

    Raises:
        asyncpg.PostgresError, sqlalchemy.exc.SQLAlchemyError, OSError: the database does not answer or refuses, or
            somebody has held a lock on a table for minutes; what is done stays done.
    """

    async def connect() -> Any:
        settings = {"lock_timeout": f"{LOCK_MILLISECONDS}ms", "application_name": "learnloop-migrate"}
        return await asyncpg.connect(dsn, timeout=10, command_timeout=LONGEST_SECONDS, server_settings=settings)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect)
    try:
        async with engine.connect() as connection:
            await _alone(connection)
            await _upgrade(connection, revision)
            await connection.run_sync(prepare_role)
            await connection.commit()
    finally:
        await engine.dispose()


async def _alone(connection: AsyncConnection) -> None:
    """Takes the lock of this session. Asked for again and again: an index that is built concurrently waits for every
    statement that runs, so it and a statement that waits for its builder would wait for each other."""
    while not (await connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": LOCK})).scalar():
        await connection.commit()
        await asyncio.sleep(ASK_SECONDS)
    await connection.commit()


async def _upgrade(connection: AsyncConnection, revision: str) -> None:
    """Whoever waits for a lock on a table makes all wait who come later: hence briefly, and again."""
    for tries_left in reversed(range(LOCK_TRIES)):
        try:
            await connection.run_sync(lambda sync: command.upgrade(alembic_config(sync), revision))
            await connection.commit()
            return
        except DBAPIError as error:
            await connection.rollback()
            if getattr(error.orig, "sqlstate", None) not in PASSES or not tries_left:
                raise
            log.info("the migration stands back for %.1f s: %s", STAND_BACK_SECONDS, error.orig)
            await asyncio.sleep(STAND_BACK_SECONDS)


def prepare_role(connection: Connection) -> None:
    """Creates the role the service works under, and grants it what it needs.

    Where this login may not create roles, and is no member of that one, it keeps its own name: FORCE ROW LEVEL SECURITY
    binds it as well, and `Database` refuses to run as a login that bypasses policies.
    """
    row = connection.execute(
        text(
            "SELECT r.rolsuper OR r.rolcreaterole AS may,"
            " EXISTS(SELECT 1 FROM pg_roles WHERE rolname = :role) AS exists"
            " FROM pg_roles r WHERE r.rolname = current_user"
        ),
        {"role": SERVICE_ROLE},
    ).one()
    member = text("SELECT pg_has_role(current_user, :role, 'SET')")
    if not row.may and not (row.exists and connection.execute(member, {"role": SERVICE_ROLE}).scalar()):
        return
    if not row.exists:
        connection.execute(text(f"CREATE ROLE {SERVICE_ROLE} NOLOGIN NOBYPASSRLS"))
    if not connection.execute(member, {"role": SERVICE_ROLE}).scalar():
        connection.execute(text(f"GRANT {SERVICE_ROLE} TO CURRENT_USER"))
    schema = connection.execute(text("SELECT quote_ident(current_schema())")).scalar()
    present = "SELECT to_regclass('audit_log') IS NOT NULL"
    audited = bool(connection.execute(text(present)).scalar())
    for statement in (
        f"GRANT USAGE ON SCHEMA {schema} TO {SERVICE_ROLE}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {SERVICE_ROLE}",
        f"REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {SERVICE_ROLE}",
        *([f"REVOKE UPDATE, DELETE ON audit_log, audit_checkpoints FROM {SERVICE_ROLE}"] if audited else []),
    ):
        connection.execute(text(statement))
