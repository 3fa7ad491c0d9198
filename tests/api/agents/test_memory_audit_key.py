"""The key of a MemoryService's audit chain: made once on a real API server, and what a real service signs with."""

import base64
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from learnloop_api import names
from learnloop_operator.bootstrap import seed
from learnloop_operator.kube.kinds import DEPLOYMENT, SECRET
from learnloop_operator.reconcile.memory_service import MemoryServiceController
from testing.operators.controller_passes import Operator
from testing.servers import data_plane_server


@pytest.fixture
async def operator(api_server: Path, namespace: str) -> AsyncIterator[Operator]:
    running = Operator(api_server, namespace)
    yield running
    await running.kube.close()


async def key(operator: Operator) -> str:
    secret = await operator.kube.get(SECRET, operator.namespace, "mem-audit")
    return base64.b64decode(secret["data"]["audit-key"]).decode()


async def put_secret(operator: Operator, name: str, data: dict[str, str]) -> None:
    metadata = {"name": name, "namespace": operator.namespace}
    await operator.kube.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})


async def test_a_key_is_made_once_and_a_service_signs_its_chain_with_it(operator: Operator, tmp_path: Path) -> None:
    controller = MemoryServiceController(operator.services)
    await operator.create("MemoryService", "mem", {"storage": {}})
    status = await operator.settle(controller, "mem")
    assert status["auditKey"] == {"name": "mem-audit"}
    made = await key(operator)
    await operator.settle(controller, "mem")
    operator.writes.clear()
    await operator.settle(controller, "mem")
    assert not operator.writes
    assert await key(operator) == made

    settings = {"audit_key": made, "audit_checkpoint_seconds": 0.1, "sweep_seconds": 0.1}
    with data_plane_server.postgres() as dsn, data_plane_server.listening(dsn, tmp_path, **settings) as url:
        headers = {names.HEADER_NAMESPACE: operator.namespace}
        async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False) as client:
            memory = {"agent_id": "la", "memory_type": "semantic", "content": {"text": "signed"}}
            assert (await client.post("/api/v1/memory/store", json=memory)).status_code == 201
            end = time.monotonic() + 120
            while not (report := (await client.get("/api/v1/audit/verify")).json())["signed_up_to"]:
                assert time.monotonic() < end, report
    assert (report["ok"], report["records"]) == (True, 1)


async def test_a_key_that_was_there_before_is_used_and_left_alone(operator: Operator) -> None:
    controller, own = MemoryServiceController(operator.services), seed()
    await put_secret(operator, "db", {"dsn": "postgresql://u:p@h:5432/d"})
    await put_secret(operator, "mem-audit", {"audit-key": own})
    await operator.create("MemoryService", "mem", {"dsnSecretRef": {"name": "db", "key": "dsn"}})
    await operator.settle(controller, "mem")
    assert await key(operator) == own
    server = await operator.kube.get(DEPLOYMENT, operator.namespace, "mem-memory")
    env = {item["name"]: item for item in server["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["LEARNLOOP_AUDIT_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "mem-audit"
