"""Servers that are too old or would answer tenants by themselves are refused; streams of before accounts are kept."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from learnloop_dataplane.config import Config
from learnloop_dataplane.nats.connection import Bus
from testing.servers.nats_server import Nats
from testing.servers.tenants_nats import LOGIN, PASSWORD
from testing.servers.token_issuer import Cluster

from ..conftest import eventually, running, settings


@asynccontextmanager
async def claims_to_be(version: str) -> AsyncIterator[str]:
    """The beginning of NATS' protocol, of a server that says it is this version; its URL."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = f'{{"server_id":"X","version":"{version}","proto":1,"max_payload":8388608,"headers":true}}'
        writer.write(f"INFO {info}\r\n".encode())
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("version", ["2.10.27", "2.11.9", "1.4.1"])
async def test_an_older_server_is_refused_with_the_version_that_is_needed(tmp_path: Path, version: str) -> None:
    async with claims_to_be(version) as url:
        bus = Bus(Config.model_validate(settings("postgresql://nowhere", tmp_path, nats_url=url)))
        bus.start()

        async def told() -> bool:
            return f"NATS is version {version}, and learnloop needs 2.12 or newer" in bus.problem

        await eventually(told)
        assert not bus.ready.is_set()
        await bus.close()


async def test_a_server_whose_tenants_would_reach_jetstream_is_refused(
    dsn: str, tmp_path: Path, port: int, cluster: Cluster
) -> None:
    """One account for all, as the chart had it once: every token would be as dangerous as the data plane's own user."""
    users = ", ".join(f"{{user: {user}, password: {PASSWORD}}}" for user in ("learnloop", "learnloop-tenants"))
    server = Nats(tmp_path / "nats", port, more=f"authorization {{ users: [{users}] }}\n").start()
    own = tmp_path / "token"
    own.write_text(cluster.token())
    with cluster.served() as url:
        values = settings(dsn, tmp_path, auth="jwks", jwks_url=url, jwks_token_file=str(own))
        async with running(**values, **LOGIN, nats_url=server.url, wait_for_nats=False) as api:

            async def told() -> bool:
                return "every tenant would" in api.bus.problem

            await eventually(told)
            assert not api.bus.ready.is_set()
            ready = await api.client.get("/readyz")
            assert ready.status_code == 503
            assert "account TENANTS without JetStream" in ready.text
    server.kill()
