"""Brings the database to the newest schema, and makes its logins: an ordinary one that owns the tables, and the admin.

Each login has one password, the newest line of its secret. While a password is rotated, pods that know the old one keep
their open connections. All of it is safe to run from several processes at the same time.
"""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncpg
from alembic import command
from alembic.config import Config as AlembicConfig
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine

from learnloop_common.key_rotation import KeyLines
from learnloop_dataplane.config import with_login, with_password
from learnloop_dataplane.postgres.row_level_security import APPEND_ONLY, SERVICE_ROLE

LOCK = 0x6C6F6769
"""Of the whole database: one process at a time makes logins."""
WAIT_SECONDS = 240.0
"""For a server that is starting."""
PAUSE_SECONDS = 2.0
CONNECT_SECONDS = 5.0
_EXISTS = "SELECT EXISTS(SELECT 1 FROM pg_roles WHERE rolname = $1)"
_ORDINARY = "ALTER ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD %L"
# What the administrator made, by migrating or by a restore; sequences follow their tables, and extensions stay.
_MADE = """
SELECT format('ALTER TABLE %s OWNER TO %I', c.oid::regclass, $1::text) FROM pg_class c
WHERE c.relkind IN ('r', 'p') AND c.relowner = current_user::regrole
    AND c.relnamespace::regnamespace::text !~ '^(pg_.*|information_schema)$'
UNION ALL SELECT format('ALTER ROUTINE %s OWNER TO %I', p.oid::regprocedure, $1::text) FROM pg_proc p
WHERE p.proowner = current_user::regrole AND p.pronamespace = 'public'::regnamespace
    AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
UNION ALL SELECT format('ALTER SCHEMA public OWNER TO %I', $1::text)
UNION ALL SELECT format('ALTER DATABASE %I OWNER TO %I', current_database(), $1::text)
"""
log = logging.getLogger(__name__)


async def prepare(
    admin: str,
    dsn: str,
    passwords: KeyLines | None = None,
    *,
    admin_passwords: KeyLines | None = None,
    seconds: float = WAIT_SECONDS,
) -> None:
    """Migrates as the administrator, and gives the login of `dsn` its password and the database.

    Safe to run again, and from several processes at the same time.

    Args:
        admin: postgresql:// of a superuser, of the same database.
        dsn: postgresql:// of the login that the data plane works as.
        passwords: its lines, the newest first; left out, the one in `dsn`.
        admin_passwords: the same of the superuser; left out, the one in `admin`.
        seconds: for a server that does not answer yet.

    Raises:
        ValueError: `dsn` names no login, no password, or the administrator.
        asyncpg.PostgresError, sqlalchemy.exc.SQLAlchemyError, OSError: the server refuses or does not answer.
    """
    login, given = _named(dsn)
    if login == _named(admin)[0]:
        raise ValueError(f"LEARNLOOP_DSN: {login!r} is the administrator's login, too: name another one")
    if passwords is None and not given:
        raise ValueError(f"LEARNLOOP_DSN: names no password of {login!r}: add it, or set LEARNLOOP_DATABASE_PASSWORD")
    await _answers(admin, admin_passwords, seconds)
    if admin_passwords:
        admin = with_password(admin, admin_passwords)
    await migrate(admin)
    connection = await asyncpg.connect(admin, timeout=10, command_timeout=600)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
        async with connection.transaction():
            if not await connection.fetchval(_EXISTS, login):
                await _change(connection, "CREATE ROLE %I", login)
            await _change(connection, _ORDINARY, login, passwords.values[0] if passwords else given)
            await _change(connection, f"GRANT {SERVICE_ROLE} TO %I", login)
            for row in await connection.fetch(_MADE, login):
                await connection.execute(row[0])
    finally:
        await connection.close()


async def keep(address: str, passwords: KeyLines) -> None:
    """Gives the superuser its newest password.

    Args:
        address: postgresql:// of the superuser; a password in it is not looked at.
        passwords: its lines, the newest first; one of them opens the server.

    Raises:
        asyncpg.InvalidAuthorizationSpecificationError: none of them opens it.
        asyncpg.PostgresError, OSError, TimeoutError: the server refuses or does not answer.
    """
    login, newest = _named(address)[0], passwords.values[0]
    for password in passwords.values:
        try:
            connection = await asyncpg.connect(with_login(address, login, password), timeout=CONNECT_SECONDS)
        except asyncpg.InvalidAuthorizationSpecificationError:
            if password == passwords.values[-1]:
                raise
            continue
        try:
            if password != newest:
                await _change(connection, "ALTER ROLE %I PASSWORD %L", login, newest)
        finally:
            await connection.close()
        return


async def _answers(dsn: str, passwords: KeyLines | None, seconds: float) -> None:
    """Returns when the administrator may connect."""
    until = time.monotonic() + seconds
    while True:
        try:
            if passwords:
                await keep(dsn, passwords)
            else:
                await (await asyncpg.connect(dsn, timeout=CONNECT_SECONDS)).close()
            return
        except (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.InvalidPasswordError) as error:
            if time.monotonic() > until:
                raise
            log.info("the database is not there yet: %s", type(error).__name__)
            await asyncio.sleep(PAUSE_SECONDS)


async def _change(connection: Any, template: str, *values: str) -> None:
    """Runs a statement that takes no parameters: PostgreSQL quotes names and literals."""
    await connection.execute(await connection.fetchval("SELECT format($1, VARIADIC $2::text[])", template, values))


def _named(dsn: str) -> tuple[str, str]:
    parts = urlsplit(dsn)
    return unquote(parts.username or ""), unquote(parts.password or "")


# Any constant will do; it only has to be the same in every process.
MIGRATION_LOCK = 0x6C6F6F70
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
            await connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": MIGRATION_LOCK})
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
