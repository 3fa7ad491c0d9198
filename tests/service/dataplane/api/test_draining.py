"""A data plane with a stop signal serves on while nodes still lead callers to it, and sends them elsewhere."""

import asyncio
import os
import signal
import sys

import httpx

from testing.servers.ports import held_port

from ..conftest import eventually
from .test_probes_port import ready


async def test_a_data_plane_that_is_told_to_end_is_not_ready_and_serves_on_for_a_while(dsn, tmp_path):
    with held_port() as port, held_port() as probes:
        settings = {
            "DSN": dsn, "ARTIFACTS": f"file://{tmp_path}", "AUTH": "none", "HOST": "127.0.0.1", "PORT": str(port),
            "PROBES_PORT": str(probes), "DRAIN_SECONDS": "15",
        }  # fmt: skip
        env = os.environ | {f"LEARNLOOP_{key}": value for key, value in settings.items()}
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "learnloop_dataplane", env=env)
        tenants = f"http://127.0.0.1:{port}/api/v1/quotas"
        try:
            await ready(f"http://127.0.0.1:{probes}")
            async with httpx.AsyncClient(trust_env=False, timeout=60) as connection, asyncio.timeout(60):
                assert "connection" not in (await connection.get(tenants)).headers
                early = await connection.post(tenants, content=b"x" * 10_000, headers={"content-encoding": "gzip"})
                assert (early.status_code, early.headers["connection"]) == (415, "close"), "its body is not read"
                process.send_signal(signal.SIGTERM)

                async def unready() -> bool:
                    return (await connection.get(f"http://127.0.0.1:{probes}/readyz")).status_code == 503

                await eventually(unready)
                ask = await connection.get(f"http://127.0.0.1:{probes}/readyz")
                assert ask.json()["problems"] == {"draining": "this process is shutting down; ask another one"}
                for _ in range(2):
                    answer = await connection.get(tenants)
                    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        finally:
            process.send_signal(signal.SIGTERM)  # the second one: it ends immediately
            await asyncio.wait_for(process.wait(), 60)
