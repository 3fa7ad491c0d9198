"""Logins of the data plane in PostgreSQL: an ordinary one that owns the tables, and the superuser that makes it.

Each has one password, the newest line of its secret. While a password is rotated, pods that know the old one keep their
open connections.
"""

import asyncio
import logging
import time
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncpg

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.config import with_login, with_password
from learnloop_dataplane.postgres.database import SERVICE_ROLE
from learnloop_dataplane.postgres.migrate import migrate

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
