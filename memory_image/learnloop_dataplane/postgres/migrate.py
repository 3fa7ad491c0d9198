"""Brings the database to the newest schema. Safe to run from several processes at the same time."""

from pathlib import Path
from typing import Any

import asyncpg
from alembic import command
from alembic.config import Config as AlembicConfig
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

from learnloop_dataplane.postgres.database import APPEND_ONLY, SERVICE_ROLE

# Any constant will do; it only has to be the same in every process.
LOCK = 0x6C6F6F70
LONGEST_SECONDS = 6 * 3600
"""For one statement: an index of a large table may take hours; a connection that broke unnoticed ends at last."""


def alembic_config(connection: Connection | None = None) -> AlembicConfig:
    """Alembic's configuration without an ini file."""
    config = AlembicConfig()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config


async def migrate(dsn: str) -> None:
    """Upgrades to the newest revision, a transaction for each; of several processes one at a time.

    Raises:
        asyncpg.PostgresError, sqlalchemy.exc.SQLAlchemyError, OSError: the database does not answer or refuses; of the
            revision in hand nothing stays.
    """

    async def connect() -> Any:
        settings = {"application_name": "learnloop-migrate"}
        return await asyncpg.connect(dsn, timeout=10, command_timeout=LONGEST_SECONDS, server_settings=settings)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect)
    try:
        async with engine.connect() as connection:
            await connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": LOCK})
            await connection.commit()
            await connection.run_sync(lambda sync: command.upgrade(alembic_config(sync), "head"))
            await connection.run_sync(prepare_role)
            await connection.commit()
    finally:
        await engine.dispose()


def prepare_role(connection: Connection) -> None:
    """Creates the role the service works under, and grants it what it needs.

    A login that may not create roles, and does not belong to that one, keeps its own name: FORCE ROW LEVEL SECURITY
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
    for statement in (
        f"GRANT USAGE ON SCHEMA {schema} TO {SERVICE_ROLE}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {SERVICE_ROLE}",
        f"REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM {SERVICE_ROLE}",
        f"REVOKE UPDATE, DELETE ON {', '.join(APPEND_ONLY)} FROM {SERVICE_ROLE}",
    ):
        connection.execute(text(statement))
