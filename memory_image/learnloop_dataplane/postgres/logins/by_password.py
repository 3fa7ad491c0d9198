"""Makes one login for each password of a role.

The password is in a setting of the transaction: the text of a statement is logged where it fails.
"""

from typing import Any

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.successive_logins import login_of

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
