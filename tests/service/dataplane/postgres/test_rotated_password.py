"""The passwords of a database are rotated on a PostgreSQL that asks for them: each login has the newest line alone."""

from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from learnloop_common.key_rotation import KeyLines
from learnloop_dataplane.config import with_login, with_password
from learnloop_dataplane.postgres.logins import keep, prepare
from testing.failover.postgres_standby import Server, one_server

from ..conftest import running, settings, trajectory

OLD, NEW = "oldSecret", "newSecret"


@pytest.fixture
def server() -> Iterator[Server]:
    with one_server() as server:
        server.sql("CREATE DATABASE data")
        (server.data / "pg_hba.conf").write_text(
            "host all learnloop 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )
        server.sql("SELECT pg_reload_conf()")
        yield server


async def user(dsn: str) -> str | None:
    """The user of this address; None: it is refused."""
    try:
        connection = await asyncpg.connect(dsn)
    except asyncpg.InvalidAuthorizationSpecificationError:
        return None
    try:
        return str(await connection.fetchval("SELECT current_user"))
    finally:
        await connection.close()


async def test_a_pod_goes_on_with_its_connections_while_the_password_changes_and_the_old_one_ends(server, tmp_path):
    admin, base = server.dsn("data"), server.dsn("data").replace("learnloop@", "learnloop_data@")
    only_old, both = KeyLines.parse(OLD), KeyLines.parse(f"{NEW}\n{OLD}")
    await prepare(admin, base, only_old)
    before, after = with_password(base, only_old), with_password(base, both)
    assert await user(before) == "learnloop_data"
    async with running(**settings(before, tmp_path)) as first:
        for _ in range(2):
            await prepare(admin, base, both)  # a new pod's first container
        assert (await user(after), await user(before)) == ("learnloop_data", None)
        await first.call("POST", "/api/v1/trajectories", 202, json=trajectory("by-the-old-pod"))
        async with running(**settings(after, tmp_path)) as second:
            await second.call("POST", "/api/v1/trajectories", 202, json=trajectory("by-the-new-pod"))
    owners = server.sql(
        "SELECT DISTINCT rolname FROM pg_class c JOIN pg_roles r ON r.oid = relowner WHERE relname LIKE 'trajector%'",
        "data",
    )
    assert owners == "learnloop_data"


@pytest.fixture
def guarded(server: Server) -> Server:
    """It asks its superuser for a password, too."""
    server.sql(f"ALTER ROLE learnloop PASSWORD '{OLD}'")
    (server.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
    server.sql("SELECT pg_reload_conf()")
    return server


async def test_a_memory_services_pod_gives_its_superuser_the_newest_password(guarded: Server, tmp_path: Path) -> None:
    for text in (OLD, f"{NEW}\n{OLD}", NEW):
        own = {"database_password": text, "database_is_own": True}
        async with running(**settings(guarded.dsn("data"), tmp_path), **own) as api:
            await api.call("POST", "/api/v1/trajectories", 202, json=trajectory(f"memory-{len(text)}"))
        assert await user(with_login(guarded.dsn("data"), "learnloop", text.splitlines()[0])) == "learnloop"
    assert await user(with_login(guarded.dsn("data"), "learnloop", OLD)) is None
    assert with_login("x://a@h:1,i:2/d", "u@", "p:/ü") == "x://u%40:p%3A%2F%C3%BC@h:1,i:2/d"


async def test_the_superusers_password_changes_when_the_database_is_prepared(guarded: Server) -> None:
    base, data = guarded.dsn("data"), guarded.dsn("data").replace("learnloop@", "learnloop_data@")
    for text in (OLD, f"{NEW}\n{OLD}", f"{NEW}\n{OLD}", NEW):
        lines = KeyLines.parse(text)
        await prepare(base, data, KeyLines.parse("ordinary"), admin_passwords=lines, seconds=0)
        assert await user(with_password(base, lines)) == "learnloop"
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
        await keep(base, KeyLines.parse("neither"))
    assert await user(with_password(base, KeyLines.parse(NEW))), "no password is changed by a process that knows none"
