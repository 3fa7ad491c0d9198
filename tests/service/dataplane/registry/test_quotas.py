"""Quotas of a namespace: what is over one is refused with its value, neighbours go on, and its use can be read."""

import asyncio
import hashlib
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest

from learnloop_dataplane.blobs import Spooled
from learnloop_dataplane.config import QuotaLimits, Quotas
from learnloop_dataplane.registry.artifacts import Artifacts, StorageQuotas

from ..conftest import eventually, running, settings, trajectory

LIMITS = QuotaLimits(artifact_bytes=1000, memories=3, episodes_per_second=0.1)
QUOTAS = Quotas(default=LIMITS, namespaces={"big": QuotaLimits(artifact_bytes=10_000)})
WAITING = """SELECT count(*) > $1 FROM pg_locks WHERE NOT granted
AND (locktype = 'transactionid' OR pg_backend_pid() = ANY(pg_blocking_pids(pid)))"""


async def test_what_is_over_a_quota_is_refused(dsn: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(**settings(dsn, tmp_path, quotas=QUOTAS)) as api:

        async def upload(size: int, status: int, namespace: str = "team-a") -> str:
            body = b"x" * size
            headers = {"x-learnloop-sha256": hashlib.sha256(body).hexdigest()}
            response = await api.call("PUT", "/api/v1/artifacts", status, namespace, content=body, headers=headers)
            return str(response.get("error", {}).get("message", ""))

        await upload(600, 201)
        message = "team-a have 600 of 1000 bytes (dataPlane.quotas.artifactBytes of the chart), and this has 500"
        assert message in await upload(500, 413)
        await upload(500, 201, "team-b")
        await upload(5000, 201, "big")
        memory = {"agent_id": "elder", "content": {"text": "the door is red"}, "memory_type": "semantic"}
        batch = [{**memory, "content": {"text": f"door {number} is red"}} for number in range(4)]
        answer = await api.call("POST", "/api/v1/memory/store/batch", 429, json={"memories": batch})
        assert "team-a has 0 of 3 memories" in answer["error"]["message"]
        await api.call("POST", "/api/v1/memory/store/batch", 201, json={"memories": batch[:3]})
        answer = await api.call("POST", "/api/v1/memory/store", 429, json=memory)
        assert "has 3 of 3 memories (dataPlane.quotas.memories of the chart)" in answer["error"]["message"]
        await api.call("POST", "/api/v1/memory/store", 201, "team-b", json=memory)
        await api.call("POST", "/api/v1/trajectories", 202, json=trajectory("first"))
        answer = await api.call("POST", "/api/v1/trajectories", 429, json=trajectory("second"))
        assert "more than 0.1 episodes a second" in answer["error"]["message"]
        await api.call("POST", "/api/v1/trajectories", 202, "team-b", json=trajectory("first"))
        for status, route in ((413, "PUT /api/v1/artifacts"), (429, "POST /api/v1/trajectories")):
            assert any(line.startswith(route) and f"refused with {status}: " in line for line in caplog.messages)
        used = {"artifact_bytes": {"used": 600, "limit": 1000}, "memories": {"used": 3, "limit": 3}}
        assert await api.call("GET", "/api/v1/quotas") == {**used, "episodes_per_second": {"limit": 0.1}}
        figures = (await api.call("GET", "/metrics")).text
        for quota in ("artifact_bytes", "memories", "episodes"):
            assert f'learnloop_quota_refusals_total{{namespace="team-a",quota="{quota}"}}' in figures
        assert 'learnloop_quota_used{namespace="team-a",quota="artifact_bytes"} 600.0' in figures


async def test_uploads_at_the_same_moment_never_share_the_last_bytes(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, quotas=QUOTAS)) as api:

        async def upload(number: int) -> int:
            body = bytes([number]) * 600
            headers = {"x-learnloop-sha256": hashlib.sha256(body).hexdigest(), "x-learnloop-step": "1"}
            path = f"training/runs/job-{number}/checkpoint" if number % 2 else "artifacts"
            headers["x-learnloop-namespace"] = "team-c"
            return (await api.client.put(f"/api/v1/{path}", content=body, headers=headers)).status_code

        statuses = await asyncio.gather(*map(upload, range(8)))
        assert statuses.count(413) == 7, statuses
        assert len([file for file in (tmp_path / "team-c").rglob("*") if file.is_file()]) == 1


async def test_a_refused_upload_leaves_the_content_to_another_of_the_same(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path)) as api:
        artifacts, sha256 = Artifacts(api.db, api.plane.shared.blobs, 1000), hashlib.sha256(b"same").hexdigest()
        quotas = StorageQuotas(api.db, Quotas(default=QuotaLimits(artifact_bytes=1)), api.plane.shared.metrics)

        async with api.db.tenant("team-e") as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('bytes/team-d', 0))")
            tasks = []
            for number, limits in enumerate((quotas, None)):  # one waits for its quota, the other for that one
                tasks.append(asyncio.create_task(artifacts.put("team-d", Spooled(BytesIO(b"same"), sha256, 4), limits)))
                await eventually(partial(connection.fetchval, WAITING, number))
        refused, stored = await asyncio.gather(*tasks, return_exceptions=True)
        assert (getattr(refused, "status", refused), stored) == (413, None)
        assert [chunk async for chunk in (await artifacts.get("team-d", sha256)).chunks] == [b"same"]
