"""The database's password is rotated under load, on a PostgreSQL that asks for it: nothing is refused."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from learnloop_api.key_lines import KeyLines
from learnloop_dataplane.postgres.ordinary_login import prepare
from learnloop_dataplane.successive_logins import with_password
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
