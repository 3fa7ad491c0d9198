"""Probes and metrics have a port of their own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from learnloop_common import http_server
from testing.servers.ports import held_port


class Ports(NamedTuple):
    tenants: int
    probes: int


@pytest.fixture
async def ports(dsn: str, tmp_path: Path) -> AsyncIterator[Ports]:
    """A data plane as its image runs it."""
    with held_port() as tenants, held_port() as probes:
        settings = {
            "DSN": dsn,
            "ARTIFACTS": f"file://{tmp_path}",
            "AUTH": "none",
            "HOST": "127.0.0.1",
            "PORT": str(tenants),
            "PROBES_PORT": str(probes),
            "DRAIN_SECONDS": "0",
        }
        env = os.environ | {f"LEARNLOOP_{key}": value for key, value in settings.items()}
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "learnloop_dataplane", env=env)
        try:
            await ready(f"http://127.0.0.1:{probes}")
            yield Ports(tenants, probes)
        finally:
            process.terminate()
            await asyncio.wait_for(process.wait(), 60)


async def ready(url: str) -> None:
    async with asyncio.timeout(60), httpx.AsyncClient(base_url=url, trust_env=False) as client:
        while True:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.1)


async def test_tenants_read_no_figures(ports: Ports) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        probes, tenants = (f"http://127.0.0.1:{port}" for port in (ports.probes, ports.tenants))
        assert (await client.get(f"{tenants}/metrics")).status_code == 404
        assert set(http_server.HEADERS) <= set((await client.get(f"{tenants}/healthz")).headers.items())
        assert "learnloop_" in (await client.get(f"{probes}/metrics")).text
        assert (await client.get(f"{probes}/api/v1/agents")).status_code == 404
