"""A MemoryService with engine weaviate: refused without its key, its service follows a real Weaviate, and the status
tells when that is away."""

import base64
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from learnloop_operator.data_plane import DataPlane
from learnloop_operator.kube.kinds import DEPLOYMENT, SECRET
from learnloop_operator.reconcile.memory_service import MemoryServiceController
from testing.operators.controller_passes import Operator
from testing.servers import data_plane_server
from testing.servers.weaviate_server import KEY, own_weaviate

pytestmark = pytest.mark.timeout(1800)  # the first to need Weaviate on a machine builds it
SECONDS = 60.0


class Resolved(DataPlane):
    """Finds the service's cluster address on this machine, as cluster DNS would."""

    here = ""

    async def degraded(self, url: str) -> Mapping[str, str] | None:
        assert url.startswith("http://mem-memory.")
        return await super().degraded(self.here)


@pytest.fixture
async def operator(api_server: Path, namespace: str) -> AsyncIterator[Operator]:
    data = Resolved("http://127.0.0.1:9", "/nonexistent")
    running = Operator(api_server, namespace, data)
    yield running
    await data.close()
    await running.kube.close()


def condition(status: dict[str, Any], type_: str) -> dict[str, Any]:
    return next(item for item in status["conditions"] if item["type"] == type_)


async def env_of(operator: Operator) -> dict[str, str]:
    """What the kubelet would set, secrets looked up."""
    server = await operator.kube.get(DEPLOYMENT, operator.namespace, "mem-memory")
    found = {}
    for item in server["spec"]["template"]["spec"]["containers"][0]["env"]:
        ref = item.get("valueFrom", {}).get("secretKeyRef")
        if ref:
            secret = await operator.kube.get(SECRET, operator.namespace, ref["name"])
            found[item["name"]] = base64.b64decode(secret["data"][ref["key"]]).decode()
        else:
            found[item["name"]] = item.get("value", "")
    return found


async def until(operator: Operator, controller: MemoryServiceController, wanted: str) -> dict[str, Any]:
    def available(status: dict[str, Any]) -> dict[str, Any]:
        return condition(status, "VectorStoreAvailable")

    return available(
        await operator.until(controller, "mem", lambda found: available(found)["status"] == wanted, SECONDS)
    )


async def test_the_service_follows_the_weaviate_it_names_and_the_status_says_when_that_is_away(
    operator: Operator, tmp_path: Path
) -> None:
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
        starting = await operator.settle(controller, "mem")
        assert condition(starting, "VectorStoreAvailable")["status"] == "Unknown"

        env = await env_of(operator)
        names = ("weaviate_url", "weaviate_grpc", "weaviate_key", "embedder")
        settings = {name: env[f"LEARNLOOP_{name.upper()}"] for name in names}
        assert settings["weaviate_key"] == KEY
        counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), 1)
        await operator.status(DEPLOYMENT, "mem-memory", {"observedGeneration": 1, **counts})
        with (
            data_plane_server.postgres() as dsn,
            data_plane_server.listening(dsn, tmp_path, sweep_seconds=0.2, **settings) as url,
        ):
            Resolved.here = url
            found = await until(operator, controller, "True")
            weaviate.kill()
            found = await until(operator, controller, "False")
            assert weaviate.url in found["message"]
            assert "nothing is lost" in found["message"]
            operator.writes.clear()
            status = await operator.settle(controller, "mem")
            assert not operator.writes, "a Weaviate that stays away is no news"
            assert condition(status, "Ready")["status"] == "True"
            weaviate.start()
            await until(operator, controller, "True")
