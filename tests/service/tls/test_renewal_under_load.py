"""Parts by TLS as processes; certificates and the authority are exchanged under load, and nothing is refused."""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest

from learnloop_common.tls import client_context
from learnloop_sdk import Learnloop
from testing.certificates import Pair, authority, folder
from testing.servers.policy_servers import clean_environment, table
from testing.servers.ports import held_port
from testing.servers.tls_parts import nats_by_tls
from testing.servers.token_issuer import Cluster

START_SECONDS = 180.0
SETTLE_SECONDS = 1.5
"""For `follow` to see a change, and for some requests after it."""
SERVED = "cart.red.svc"


class Parts:
    """NATS, the data plane and a policy server, each with a certificate of its own."""

    def __init__(self, root: Path, dsn: str, stack: ExitStack) -> None:
        self.root, self.cluster = root, Cluster()
        self.old, self.new = authority("old"), authority("new")
        self.hub, self.nats = (folder(root / name / "tls", self.old) for name in ("hub", "nats"))
        self.pods = folder(root / "pods" / "tls", self.old, SERVED)
        self.token = root / "token"
        self.token.write_text(self.cluster.token("red"))
        ports = [stack.enter_context(held_port()) for _ in range(3)]
        self.dsn = dsn
        self.nats_url = stack.enter_context(nats_by_tls(root / "nats", self.nats, ports[0]))
        self.url, self.policy_port = f"https://localhost:{ports[1]}", ports[2]
        jwks = stack.enter_context(self.cluster.served())
        stack.enter_context(self._process("learnloop_dataplane", self._hub_settings(ports[1], jwks)))
        stack.enter_context(self._process("learnloop_serving", self._policy_settings()))

    def trust(self, *authorities: Pair) -> None:
        for part in (self.hub, self.nats, self.pods):
            part.trust(*authorities)

    def show(self, by: Pair) -> None:
        for part in (self.hub, self.nats):
            part.show(by)
        self.pods.show(by, SERVED)

    def _hub_settings(self, port: int, jwks: str) -> dict[str, str]:
        return self.hub.environment() | {
            "LEARNLOOP_DSN": self.dsn,
            "LEARNLOOP_NATS_URL": self.nats_url,
            "LEARNLOOP_ARTIFACTS": f"file://{self.root}/artifacts",
            "LEARNLOOP_JWKS_URL": jwks,
            "LEARNLOOP_JWKS_TOKEN_FILE": str(self.token),
            "LEARNLOOP_ROLES": "off",
            "LEARNLOOP_RUN_WRITERS": "namespace",
            "LEARNLOOP_HOST": "127.0.0.1",
            "LEARNLOOP_PORT": str(port),
            "LEARNLOOP_LOG_LEVEL": "WARNING",
            "LEARNLOOP_DRAIN_SECONDS": "0",
            "LEARNLOOP_SWEEP_SECONDS": "0.2",
        }

    def _policy_settings(self) -> dict[str, str]:
        routing = self.root / "routing.json"
        routing.write_text(table(("aaaaaaaa", "stable", 100)))
        return self.pods.environment() | {
            "LEARNLOOP_MODEL_DEPLOYMENT": "cart",
            "LEARNLOOP_REVISION": "aaaaaaaa",
            "LEARNLOOP_MODEL_URI": "uniform://discrete/2?observations=4",
            "LEARNLOOP_ROUTING_FILE": str(routing),
            "LEARNLOOP_NAMESPACE": "red",
            "LEARNLOOP_DATA_URL": self.url,
            "LEARNLOOP_TOKEN_FILE": str(self.token),
            "LEARNLOOP_HOST": "127.0.0.1",
            "LEARNLOOP_PORT": str(self.policy_port),
            "LEARNLOOP_TERMINATION_LOG": str(self.root / "termination"),
        }

    def _process(self, module: str, settings: dict[str, str]):
        process = subprocess.Popen([sys.executable, "-m", module], env=clean_environment(**settings))
        stack = ExitStack()
        stack.callback(process.wait, 30)
        stack.callback(process.terminate)
        return stack


@pytest.fixture(scope="module")
def parts(postgres) -> Iterator[Parts]:
    root = Path(tempfile.mkdtemp(prefix="learnloop-tls-"))
    root.chmod(0o755)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        postgres.psql("CREATE DATABASE tls_parts;")
        yield Parts(root, str(postgres.get_uri("tls_parts")), stack)


@asynccontextmanager
async def fresh_connections(parts: Parts) -> AsyncIterator[httpx.AsyncClient]:
    """A client that opens a connection for each request, so that each is a handshake."""
    context = client_context({"LEARNLOOP_TLS_CA": str(parts.hub.bundle)})
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(verify=context, limits=limits, timeout=30, trust_env=False) as client:
        yield client


async def until(check, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if await check():
                return
        except (httpx.HTTPError, OSError):
            pass
        assert time.monotonic() < deadline, f"not true within {seconds} s"
        await asyncio.sleep(0.1)


def policy(parts: Parts, path: str) -> dict:
    """A request to the policy server by its address, and by the name of its Service for the certificate."""
    return {"url": f"https://127.0.0.1:{parts.policy_port}{path}", "extensions": {"sni_hostname": SERVED}}


async def ready(parts: Parts, client: httpx.AsyncClient) -> None:
    async def both() -> bool:
        hub = await client.get(f"{parts.url}/readyz")
        server = await client.get(**policy(parts, "/readyz"))
        return hub.status_code == server.status_code == 200

    await until(both)


@pytest.mark.timeout(600)
async def test_a_rollover_of_everything_under_load_loses_and_refuses_nothing(parts, monkeypatch):
    monkeypatch.setenv("LEARNLOOP_TLS_CA", str(parts.hub.bundle))
    over, requests, opened, recorded = asyncio.Event(), 0, 0, 0
    async with fresh_connections(parts) as client:
        await ready(parts, client)
        loop = Learnloop("walker", "https://unused", data_url=parts.url, namespace="red", token_file=parts.token)

        async def keep_asking() -> None:
            nonlocal requests
            while not over.is_set():
                (await client.get(f"{parts.url}/healthz")).raise_for_status()
                requests += 1

        async def keep_opening() -> None:
            nonlocal opened
            while not over.is_set():
                (await client.post(**policy(parts, "/v1/episodes"), content=b"{}")).raise_for_status()
                opened += 1

        async def keep_recording() -> None:
            nonlocal recorded
            while not over.is_set():
                async with loop.episode("walk", external=True) as episode:
                    episode.record(observation=[0.1, 0.2], action=1, reward=1.0, terminated=True)
                    episode.outcome(True)
                recorded += 1
                await asyncio.sleep(0.05)

        async with loop:
            tasks = [asyncio.create_task(one()) for one in (keep_asking, keep_opening, keep_recording)]

            async def settle() -> None:
                before = requests, opened, recorded
                await asyncio.sleep(SETTLE_SECONDS)

                async def moved() -> bool:
                    for task in tasks:
                        assert not task.done(), task.exception()
                    return requests > before[0] and opened > before[1] and recorded > before[2]

                await until(moved)

            await settle()
            for _ in range(2):
                parts.show(parts.old)
                await settle()
            parts.trust(parts.new, parts.old)
            await settle()
            parts.show(parts.new)
            await settle()
            parts.trust(parts.new)
            await settle()
            over.set()
            await asyncio.gather(*tasks)
            assert await loop.flush(60) == 0
    assert min(requests, opened, recorded) > 20
    connection = await asyncpg.connect(parts.dsn)
    try:

        async def stored() -> bool:
            return int(await connection.fetchval("SELECT count(*) FROM trajectories")) == recorded

        await until(stored, 60)
    finally:
        await connection.close()


async def test_plain_http_is_answered_by_nobody(parts: Parts) -> None:
    async with fresh_connections(parts) as client:
        await ready(parts, client)
    async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
        for url in (parts.url, f"https://127.0.0.1:{parts.policy_port}"):
            with pytest.raises(httpx.HTTPError):
                await client.get(url.replace("https", "http") + "/healthz")
