"""A MemoryService with engine weaviate: its service follows a real Weaviate, and says when that is away."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from learnloop_operator.data_plane_client import DataPlane
from learnloop_operator.kube.kinds import DEPLOYMENT, SECRET
from learnloop_operator.reconcile.memory_service import MemoryServiceController
from testing.operators.controller_passes import Operator
from testing.servers import data_plane_server
from testing.servers.weaviate_server import KEY, own_weaviate

pytestmark = pytest.mark.timeout(1800)  # the first to need Weaviate on a machine builds it
SECONDS = 60.0


@pytest.fixture
async def operator(api_server: Path, namespace: str) -> AsyncIterator[Operator]:
    data = DataPlane("http://127.0.0.1:9", "/nonexistent")
    running = Operator(api_server, namespace, data)
    yield running
    await data.close()
    await running.kube.close()


async def env_of(operator: Operator) -> dict[str, str]:
    """The variables that the kubelet would set, secrets looked up."""
    server = await operator.kube.get(DEPLOYMENT, operator.namespace, "mem-memory")
    variables = {}
    for item in server["spec"]["template"]["spec"]["containers"][0]["env"]:
        ref = item.get("valueFrom", {}).get("secretKeyRef")
        if ref:
            secret = await operator.kube.get(SECRET, operator.namespace, ref["name"])
            variables[item["name"]] = base64.b64decode(secret["data"][ref["key"]]).decode()
        else:
            variables[item["name"]] = item.get("value", "")
    return variables


async def until(url: str, away: bool) -> str:
    """The service's word on its vector store, as soon as it is away or back."""
    deadline = time.monotonic() + SECONDS
    while True:
        with await asyncio.to_thread(urlopen, f"{url}/readyz") as answer:
            problem = str(json.load(answer)["degraded"].get("vector store", ""))
        if bool(problem) == away:
            return problem
        assert time.monotonic() < deadline, problem
        await asyncio.sleep(0.2)


async def test_the_service_follows_the_weaviate_it_names_and_says_when_that_is_away(operator, tmp_path):
    controller = MemoryServiceController(operator.services)
    with own_weaviate(tmp_path / "weaviate") as weaviate:
        key = {"name": "vectors", "key": "api-key"}
        named = {"url": weaviate.url, "grpc": weaviate.grpc, "apiKeySecretRef": key}
        embedder = {"url": "http://127.0.0.1:9/v1", "model": "small"}
        spec = {"storage": {}, "engine": "weaviate", "weaviate": named, "embedder": embedder}
        await operator.create("MemoryService", "mem", spec)
        metadata = {"name": "vectors", "namespace": operator.namespace}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"api-key": KEY}}
        await operator.kube.create(secret)
        await operator.settle(controller, "mem")
        env = await env_of(operator)
        names = ("weaviate_url", "weaviate_grpc", "weaviate_key", "embedder")
        settings = {name: env[f"LEARNLOOP_{name.upper()}"] for name in names}
        assert settings["weaviate_key"] == KEY
        with (
            data_plane_server.postgres() as dsn,
            data_plane_server.listening(dsn, tmp_path, sweep_seconds=0.2, **settings) as url,
        ):
            await until(url, away=False)
            weaviate.kill()
            assert await until(url, away=True)
            weaviate.start()
            await until(url, away=False)
