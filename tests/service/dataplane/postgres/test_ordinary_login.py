"""The data plane works as a login that owns its own tables and may do nothing else in the server."""

import os
from pathlib import Path

import asyncpg
import pytest

from learnloop_dataplane.postgres.logins import prepare
from learnloop_dataplane.postgres.row_level_security import SERVICE_ROLE

from ..conftest import eventually, new_database, running, settings, superuser, trajectory

STRANGERS = """
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
WHERE c.relkind IN ('r', 'p', 'S', 'v') AND r.rolname <> $1
    AND c.relnamespace::regnamespace::text !~ '^(pg_.*|information_schema)$'
    AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e')
"""
ROUTINES = """
SELECT count(*) FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
WHERE p.proname IN ('note_change', 'refuse_change') AND r.rolname <> $1
"""


@pytest.fixture
def login(postgres) -> str:
    return f"data_{os.getpid()}"


async def works(dsn: str, folder: Path, before: set[str]) -> None:
    """The service on this login: it stores, keeps tenants apart, and is degraded by nothing."""
    async with running(**settings(dsn, folder)) as api:
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("new"))
        memory = {"agent_id": "a", "memory_type": "semantic", "content": {"text": "the door code is blue"}}
        await api.call("POST", "/api/v1/memory/store", 201, json=memory)

        async def calm() -> bool:
            return not (await api.call("GET", "/readyz"))["degraded"]

        await eventually(calm)
        assert not api.plane.shared.background.failing
        async with api.db.tenant("team-a") as connection:
            assert await connection.fetchval("SELECT current_user") == SERVICE_ROLE
            rows = await connection.fetch("SELECT trajectory_id FROM trajectories")
            assert {row["trajectory_id"] for row in rows} == {"new", *before}
        async with api.db.tenant("team-b") as connection:
            assert await connection.fetchval("SELECT count(*) FROM trajectories") == 0


async def test_a_new_database_is_the_logins_own_and_nothing_else_is(postgres, login: str, tmp_path: Path) -> None:
    admin = new_database(postgres, f"ordinary_{os.getpid()}")
    dsn = admin.replace("postgres:@", f"{login}:secret-1@")
    for _ in range(2):
        await prepare(admin, dsn)
    await works(dsn, tmp_path, set())
    async with superuser(admin) as connection:
        assert await connection.fetch(STRANGERS, login) == []
        assert await connection.fetchval(ROUTINES, login) == 0
    own = await asyncpg.connect(dsn)
    try:
        for forbidden in (
            "SELECT pg_read_file('/etc/passwd')",
            "COPY (SELECT 1) TO PROGRAM 'true'",
            "CREATE ROLE more SUPERUSER",
            f"ALTER ROLE {login} BYPASSRLS",
            "CREATE DATABASE more",
            "SET ROLE postgres",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await own.execute(forbidden)
        assert await own.fetchval("SELECT count(*) FROM trajectories") == 0, "the policies bind the owner, too"
    finally:
        await own.close()


async def test_a_database_in_use_by_the_administrator_is_handed_over_with_its_rows(migrated, login, tmp_path):
    admin = migrated(f"handed_{os.getpid()}")
    async with running(**settings(admin, tmp_path)) as api:
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("old"))
    dsn = admin.replace("postgres:@", f"{login}:secret-2@")
    await prepare(admin, dsn)
    await works(dsn, tmp_path, {"old"})
    async with superuser(admin) as connection:
        assert await connection.fetch(STRANGERS, login) == []


async def test_one_login_is_not_both(postgres) -> None:
    admin = new_database(postgres, f"both_{os.getpid()}")
    with pytest.raises(ValueError, match="administrator's login"):
        await prepare(admin, admin)
