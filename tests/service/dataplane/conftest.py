"""Real NATS, a database for each test module, and the service on both."""

import asyncio
import inspect
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import httpx
import pytest

from learnloop_dataplane.api.app import create_app
from learnloop_dataplane.assembly.data_plane import DataPlane
from learnloop_dataplane.config import Config
from learnloop_dataplane.postgres.logins import migrate
from testing.servers.nats_server import START_SECONDS, Nats
from testing.servers.ports import held_port
from testing.servers.tenants_nats import LOGIN, accounts
from testing.servers.token_issuer import Cluster

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def port() -> Iterator[int]:
    """Dead until this test's own server listens on it, as often as it likes."""
    with held_port() as number:
        yield number


@pytest.fixture(scope="session")
def migrated(postgres) -> Callable[[str], str]:
    """Creates a database that has its tables already, by name; returns its URL. Migrating takes as long as a test."""
    template = f"template_{os.getpid()}"
    with ThreadPoolExecutor(1) as thread:  # this one's event loop belongs to the tests
        thread.submit(asyncio.run, migrate(new_database(postgres, template))).result()
    return lambda name: new_database(postgres, name, template)


@pytest.fixture(scope="module")
def dsn(migrated: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    """A fresh database for each test module."""
    name = request.module.__name__.rsplit(".", 1)[-1]
    return migrated(f"{name}_{os.getpid()}")


def new_database(postgres, name: str, template: str = "template1") -> str:
    """Creates a database, empty by default, and returns its URL."""
    postgres.psql(f"CREATE DATABASE {name} TEMPLATE {template};")
    return str(postgres.get_uri(name))


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    with held_port() as port:
        server = Nats(tmp_path_factory.mktemp("nats"), port).start()
        yield server
        server.kill()


def settings(dsn: str, directory: Path, **changes) -> dict:
    """Settings of a service for tests."""
    values = {
        "dsn": dsn,
        "artifacts": f"file://{directory}",
        "auth": "none",
        "ack_wait_seconds": 2.0,
        "sweep_seconds": 0.2,
        "pool_size": 4,
        "consolidate_seconds": 0,  # where a test does not say when, it would be any time
    }
    return values | changes


class Api:
    """The service in this process, spoken to through its ASGI interface."""

    def __init__(self, app, client: httpx.AsyncClient) -> None:
        self.plane: DataPlane = app.state.data_plane
        self.memory, self.privacy, self.sealer = self.plane.memory, self.plane.privacy, self.plane.shared.sealer
        self.db, self.bus = self.plane.shared.db, self.plane.shared.bus
        self.client = client

    async def call(self, method: str, path: str, status: int = 200, namespace: str = "team-a", **kwargs):
        """One request; asserts its status and returns its JSON (or the response when there is none)."""
        headers = {"x-learnloop-namespace": namespace, **kwargs.pop("headers", {})}
        answer = await self.client.request(method, path, headers=headers, **kwargs)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text[:500]}"
        return answer.json() if answer.headers.get("content-type", "").startswith("application/json") else answer


@asynccontextmanager
async def running(*, wait_for_nats: bool = True, **values) -> AsyncIterator[Api]:
    """A started service."""
    app = create_app(Config.model_validate(values))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://data", trust_env=False, verify=False) as client,
    ):
        api = Api(app, client)
        await asyncio.wait_for(api.db.ready.wait(), START_SECONDS)
        if api.bus and wait_for_nats:
            await asyncio.wait_for(api.bus.ready.wait(), START_SECONDS)
        yield api


@pytest.fixture
async def api(dsn: str, tmp_path: Path) -> AsyncIterator[Api]:
    """A service without NATS on this module's database."""
    async with running(**settings(dsn, tmp_path)) as started:
        yield started


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def guarded(dsn: str, tmp_path: Path, cluster: Cluster) -> AsyncIterator[tuple[Api, Nats]]:
    """A service that asks for tokens, with a NATS configured as in the chart."""
    with held_port() as port, cluster.served() as url:
        server = Nats(tmp_path / "nats", port, more=accounts(tmp_path)).start()
        own = tmp_path / "token"
        own.write_text(cluster.token())
        tokens = {"auth": "jwks", "jwks_url": url, "jwks_token_file": str(own)}
        values = settings(dsn, tmp_path, **tokens, kube_url=url.removesuffix("/openid/v1/jwks"))
        async with running(**values, **LOGIN, nats_url=server.url) as api:
            yield api, server
        server.kill()


async def register(api: Api, cluster: Cluster, namespace: str, agent: str) -> None:
    """A LearningAgent, by a ServiceAccount of its namespace that may register one; an agent's own may not."""
    cluster.rights[f"system:serviceaccount:{namespace}:registrar"] = {"update agents"}
    headers = {"Authorization": f"Bearer {cluster.token(namespace, 'registrar')}"}
    answer = await api.client.put(f"/api/v1/agents/{agent}", headers=headers, json={})
    assert answer.is_success, answer.text


async def eventually(check, seconds: float = 200.0):
    """The first true value that a function returns, or its coroutine."""
    deadline = time.monotonic() + seconds
    while True:
        value = check()
        if value := await value if inspect.isawaitable(value) else value:
            return value
        assert time.monotonic() < deadline, f"still not true after {seconds} s"
        await asyncio.sleep(0.03)


async def measured(api, *samples: str) -> None:
    """Waits until /metrics has them: what a transaction did is counted a moment after it."""

    async def there() -> bool:
        text = (await api.call("GET", "/metrics")).text
        return all(sample in text for sample in samples)

    await eventually(there)


@asynccontextmanager
async def superuser(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection that sees every tenant."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


def trajectory(identity: str, agent: str = "walker", episode_return: float = 10.0, **changes) -> dict:
    """A small valid trajectory."""
    body = {
        "trajectory_id": identity,
        "agent": agent,
        "task": "cartpole",
        "episode_id": identity,
        "policy_revision": "3f9a2c81",
        "started_at": NOW.isoformat(),
        "ended_at": (NOW + timedelta(seconds=1)).isoformat(),
        "steps": [
            {"observation": [0.1, 0.2, 0.3, float(index)], "action": 1, "log_prob": -0.7, "reward": 1.0}
            for index in range(3)
        ],
        "outcome": {"status": "completed", "episode_return": episode_return, "success": episode_return > 5},
    }
    return body | changes


POLICY = {
    "components": [
        {"name": "return", "type": "environment", "weight": 0.5, "scale": 10},
        {"name": "success", "type": "success", "weight": 0.5},
    ],
    "normalisation": {"method": "zscore", "clip": 5},
}
