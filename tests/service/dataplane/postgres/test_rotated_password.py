"""The passwords of a database are rotated under load, on a PostgreSQL that asks for them: nothing is refused."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.config_values import with_login, with_password
from learnloop_dataplane.postgres.logins import keep, prepare
from testing.failover.postgres_standby import Server, one_server

from ..conftest import Api, running, settings, trajectory

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


@pytest.mark.timeout(300)
async def test_nothing_is_refused_while_the_password_changes_and_the_old_one_ends(
    server: Server, tmp_path: Path
) -> None:
    admin, base = server.dsn("data"), server.dsn("data").replace("learnloop@", "learnloop_data@")
    only_old, both, only_new = (KeyLines.parse(text) for text in (OLD, f"{NEW}\n{OLD}", NEW))
    await prepare(admin, base, only_old)
    answers: list[int] = []
    over = asyncio.Event()

    async def load(api: object, name: str) -> None:
        number = 0
        while not over.is_set():
            body = trajectory(f"{name}-{number}")
            headers = {"x-learnloop-namespace": "team-a"}
            answer = await api.client.post("/api/v1/trajectories", headers=headers, json=body)  # type: ignore[attr-defined]
            answers.append(answer.status_code)
            number += 1

    async def may(dsn: str) -> bool:
        try:
            connection = await asyncpg.connect(dsn)
        except asyncpg.InvalidAuthorizationSpecificationError:
            return False
        try:
            return bool(await connection.fetchval("SELECT current_user = 'learnloop_data'"))
        finally:
            await connection.close()

    before, after = with_password(base, only_old), with_password(base, both)
    async with running(**settings(before, tmp_path)) as first:
        first_load = asyncio.create_task(load(first, "first"))
        await prepare(admin, base, both)  # a new pod's first container
        assert await may(before), "pods that have not been replaced open connections"
        async with running(**settings(after, tmp_path)) as second:
            second_load = asyncio.create_task(load(second, "second"))
            await asyncio.sleep(1)
            await prepare(admin, base, only_new)
            assert await may(after), "pods of the window open connections, too"
            assert await may(with_password(base, only_new))
            assert not await may(before), "the old password has ended"
            await asyncio.sleep(0.5)
            over.set()
            await asyncio.gather(first_load, second_load)
            async with second.db.tenant("team-a") as connection:
                stored = await connection.fetchval("SELECT count(*) FROM trajectories")
    assert set(answers) <= {200, 201, 202}
    assert stored == len(answers) > 10
    owners = server.sql(
        "SELECT DISTINCT rolname FROM pg_class c JOIN pg_roles r ON r.oid = relowner WHERE relname LIKE 'trajector%'",
        "data",
    )
    assert owners == "learnloop_data"
    await prepare(admin, base, KeyLines.parse("third"))
    assert not await may(after), "nor do logins of passwords that are gone"


@pytest.fixture
def guarded(server: Server) -> Server:
    """It asks its superuser for a password, too."""
    server.sql(f"ALTER ROLE learnloop PASSWORD '{OLD}'")
    (server.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
    server.sql("SELECT pg_reload_conf()")
    return server


async def opens(dsn: str) -> bool:
    try:
        connection = await asyncpg.connect(dsn)
    except asyncpg.InvalidAuthorizationSpecificationError:
        return False
    try:
        return bool(
            await connection.fetchval("SELECT current_user = 'learnloop' AND current_setting('is_superuser')::bool")
        )
    finally:
        await connection.close()


@pytest.mark.timeout(300)
async def test_a_memory_services_password_changes_under_load_and_the_old_one_ends(
    guarded: Server, tmp_path: Path
) -> None:
    base = guarded.dsn("data")
    only_old, both, only_new = (KeyLines.parse(text) for text in (OLD, f"{NEW}\n{OLD}", NEW))
    answers: list[int] = []
    over = asyncio.Event()

    def pod(text: str) -> dict[str, Any]:
        """What a MemoryService's pod is given."""
        return settings(base, tmp_path) | {"database_password": text, "database_is_own": True}

    async def load(api: Api) -> None:
        while not over.is_set():
            body = trajectory(f"memory-{len(answers)}")
            answers.append(0)
            mine = len(answers) - 1
            headers = {"x-learnloop-namespace": "team-a"}
            answers[mine] = (await api.client.post("/api/v1/trajectories", headers=headers, json=body)).status_code

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(running(**pod(OLD)))
        loads = [asyncio.create_task(load(first))]
        second = await stack.enter_async_context(running(**pod(f"{NEW}\n{OLD}")))
        loads.append(asyncio.create_task(load(second)))
        for lines in (only_old, both):
            assert await opens(with_password(base, lines)), "pods of both kinds open connections"
        third = await stack.enter_async_context(running(**pod(NEW)))
        loads.append(asyncio.create_task(load(third)))
        assert await opens(with_password(base, both)), "pods of the window open connections, too"
        assert await opens(with_password(base, only_new))
        assert not await opens(with_password(base, only_old)), "the old password has ended"
        await asyncio.sleep(0.5)
        over.set()
        await asyncio.gather(*loads)
        async with third.db.tenant("team-a") as connection:
            stored = await connection.fetchval("SELECT count(*) FROM trajectories")
    assert set(answers) <= {200, 201, 202}
    assert stored == len(answers) > 10


async def test_the_superusers_password_changes_and_whoever_migrates_is_let_in_all_the_while(guarded: Server) -> None:
    base, data = guarded.dsn("data"), guarded.dsn("data").replace("learnloop@", "learnloop_data@")
    ordinary = KeyLines.parse("ordinary")
    for text in (OLD, f"{NEW}\n{OLD}", f"{NEW}\n{OLD}", NEW, NEW):
        lines = KeyLines.parse(text)
        await prepare(base, data, ordinary, admin_passwords=lines, seconds=0)
        assert await opens(with_password(base, lines))
        assert await opens(with_login(base, "learnloop", lines.values[-1])), "as a backup comes: by the last line"
        assert await opens(with_password(base, KeyLines.parse(OLD))) is (OLD in text)
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
        await keep(base, KeyLines.parse("neither"))
    assert await opens(with_password(base, KeyLines.parse(NEW))), "who knows no password changes none"


async def test_where_nothing_is_rotated_there_is_one_superuser(guarded: Server) -> None:
    base, lines = guarded.dsn("data"), KeyLines.parse(OLD)
    await keep(base, lines)
    connection = await asyncpg.connect(with_password(base, lines))
    roles = await connection.fetch("SELECT rolname FROM pg_roles WHERE rolname LIKE 'learnloop%'")
    await connection.close()
    assert [row["rolname"] for row in roles] == ["learnloop"]
