"""Rotates the superuser's own password: whoever comes with one that holds is let in, also meanwhile."""

from urllib.parse import unquote, urlsplit

import asyncpg

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.postgres.logins.by_password import LOCK, set_logins
from learnloop_dataplane.postgres.schema_facts import SERVICE_ROLE
from learnloop_dataplane.successive_logins import logins_of, with_login

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
