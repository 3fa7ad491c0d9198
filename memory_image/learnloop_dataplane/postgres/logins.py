"""Logins of the data plane in PostgreSQL: its own and the superuser's, each with the passwords that are valid."""

import asyncio
import logging
import time
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncpg

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.config_values import login_of, logins_of, with_login, with_password
from learnloop_dataplane.postgres.migrate import migrate
from learnloop_dataplane.postgres.schema_facts import SERVICE_ROLE

LOCK = 0x6C6F6769
"""Of the whole database: who makes logins makes them alone."""
_SECOND = """
DO $$
DECLARE login text := current_setting('learnloop.login');
    second text := current_setting('learnloop.second'); BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = second) THEN
        EXECUTE format('CREATE ROLE %I', second);
    END IF;
    EXECUTE format(
        'ALTER ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD %L',
        second, current_setting('learnloop.password'));
    EXECUTE format('GRANT %I TO %I', login, second);
    -- What it makes belongs to the owner of everything else.
    EXECUTE format('ALTER ROLE %I SET role = %I', second, login);
END $$
"""
_OTHERS = """
SELECT quote_ident(m.rolname) FROM pg_roles m JOIN pg_auth_members a ON a.member = m.oid
    JOIN pg_roles o ON o.oid = a.roleid
WHERE o.rolname = $1 AND m.rolname ~ ('^' || o.rolname || '_[0-9a-f]{8}$') AND m.rolname <> ALL($2::text[])
"""


async def set_logins(connection: Any, login: str, passwords: KeyLines, role: str) -> None:
    """In a transaction of the caller's, who holds LOCK.

    Args:
        role: a statement that gives the role of the setting learnloop.login the password of learnloop.password.
    """
    settings = "SELECT set_config('learnloop.login', $1, true), set_config('learnloop.password', $2, true)"
    await connection.execute(settings, login, passwords.values[-1])  # the oldest: who has no other yet knows it
    await connection.execute(role)
    for password in passwords.values:
        second = "SELECT set_config('learnloop.password', $1, true), set_config('learnloop.second', $2, true)"
        await connection.execute(second, password, login_of(login, password))
        await connection.execute(_SECOND)
    hold = [login_of(login, password) for password in passwords.values]
    for row in await connection.fetch(_OTHERS, login, hold):
        await connection.execute(f"DROP ROLE {row[0]}")


WAIT_SECONDS = 240.0
"""For a server that is on its way."""
PAUSE_SECONDS = 2.0
_OWN = (
    # Neither what an extension brings nor a sequence that follows its table. Tables of other roles are left alone.
    """
    SELECT format('ALTER %s %s OWNER TO %I',
        CASE c.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
        c.oid::regclass, $1::text)
    FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S') AND r.rolname = current_user
        AND c.relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
        AND NOT EXISTS (SELECT 1 FROM pg_depend d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'e', 'i')
                AND (d.deptype = 'e' OR c.relkind = 'S'))
    ORDER BY c.relkind = 'S', c.oid
    """,
    """
    SELECT format('ALTER ROUTINE %s OWNER TO %I', p.oid::regprocedure, $1::text)
    FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
    WHERE r.rolname = current_user AND p.pronamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema')
        AND NOT EXISTS (SELECT 1 FROM pg_depend d
            WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
    """,
    """
    SELECT format('ALTER TYPE %s OWNER TO %I', t.oid::regtype, $1::text)
    FROM pg_type t JOIN pg_roles r ON r.oid = t.typowner
    WHERE r.rolname = current_user AND t.typtype IN ('d', 'e', 'r')
        AND t.typnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema')
        AND NOT EXISTS (SELECT 1 FROM pg_depend d
            WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e')
    """,
    """
    SELECT format('ALTER SCHEMA %I OWNER TO %I', n.nspname, $1::text)
    FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner
    WHERE r.rolname = current_user AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
    """,
)
_ROLE = """
DO $$
DECLARE login text := current_setting('learnloop.login'); BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = login) THEN
        EXECUTE format('CREATE ROLE %I', login);
    END IF;
    EXECUTE format(
        'ALTER ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD %L',
        login, current_setting('learnloop.password'));
END $$
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

    Safe to run again, and from several processes at once.

    Args:
        admin: postgresql:// of a superuser, of the same database.
        dsn: postgresql:// of the login that the data plane works as.
        passwords: all that hold, the newest first; left out, the one in `dsn`.
        admin_passwords: the same of the superuser, which gets a login for each; left out, the one in `admin`.
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
    passwords = passwords or KeyLines.parse(given)
    await _answers(admin, admin_passwords, seconds)
    if admin_passwords:
        admin = with_password(admin, admin_passwords)
    await migrate(admin)
    connection = await asyncpg.connect(admin, timeout=10, command_timeout=600)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
        async with connection.transaction():
            await set_logins(connection, login, passwords, _ROLE)
            quoted = await connection.fetchval("SELECT quote_ident($1)", login)
            database = await connection.fetchval("SELECT quote_ident(current_database())")
            await connection.execute(f"GRANT {SERVICE_ROLE} TO {quoted}")
            await connection.execute(f"ALTER DATABASE {database} OWNER TO {quoted}")
        await _hand_over(connection, login)
    finally:
        await connection.close()


async def _hand_over(connection: Any, login: str) -> None:
    """Gives the login what the administrator made: nobody writes there yet."""
    statements = [row[0] for question in _OWN for row in await connection.fetch(question, login)]
    for statement in statements:
        await connection.execute(statement)
    if statements:
        log.info("%d objects of the database belong to the login %s now", len(statements), login)


async def _answers(dsn: str, passwords: KeyLines | None, seconds: float) -> None:
    """Returns when the administrator may connect."""
    until = time.monotonic() + seconds
    while True:
        try:
            if passwords:
                await keep(dsn, passwords)
            else:
                await (await asyncpg.connect(dsn, timeout=5)).close()
            return
        except (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.InvalidPasswordError) as error:
            if time.monotonic() > until:
                raise
            log.info("the database is not there yet: %s", type(error).__name__)
            await asyncio.sleep(PAUSE_SECONDS)


def _named(dsn: str) -> tuple[str, str]:
    parts = urlsplit(dsn)
    return unquote(parts.username or ""), unquote(parts.password or "")


CONNECT_SECONDS = 5.0
_PASSWORD = f"""
DO $$ BEGIN
    -- Sessions of a second login become what its owner was given, and a superuser need not be given it.
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{SERVICE_ROLE}') THEN
        EXECUTE format('GRANT {SERVICE_ROLE} TO %I', current_setting('learnloop.login'));
    END IF;
    EXECUTE format('ALTER ROLE %I PASSWORD %L',
        current_setting('learnloop.login'), current_setting('learnloop.password'));
END $$
"""


async def keep(address: str, passwords: KeyLines) -> None:
    """Gives the superuser a login for each password, and takes away those of others. Safe to run again, and from
    several processes at once.

    Args:
        address: postgresql:// of the superuser; a password in it is not looked at.
        passwords: all that hold, the newest first; one of them opened the server before.

    Raises:
        asyncpg.InvalidAuthorizationSpecificationError: none of them opens it.
        asyncpg.PostgresError, OSError, TimeoutError: the server refuses or does not answer.
    """
    login = _login(address)
    found, connection = await _opened(address, passwords)
    try:
        if found == login and len(passwords.values) == 1:
            return  # nothing is rotated, and there may be no second login at all
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
        async with connection.transaction():
            await set_logins(connection, login, passwords, _PASSWORD)
    finally:
        await connection.close()


async def _opened(address: str, passwords: KeyLines) -> tuple[str, asyncpg.Connection]:
    """The first login that is let in: the superuser's own while nothing is rotated, then one of those beside it."""
    tried = list(logins_of(_login(address), passwords).items())
    for number, (login, password) in enumerate(tried):
        try:
            return login, await asyncpg.connect(with_login(address, login, password), timeout=CONNECT_SECONDS)
        except asyncpg.InvalidAuthorizationSpecificationError:
            if number == len(tried) - 1:
                raise
    raise AssertionError("there is always one password")


def _login(address: str) -> str:
    return unquote(urlsplit(address).username or "")
