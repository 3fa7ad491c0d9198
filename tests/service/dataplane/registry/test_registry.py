"""Artifacts, checkpoints, heartbeats and proofs."""

import asyncio
import hashlib
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from learnloop_dataplane.access.kubernetes_api import KubeApi
from learnloop_dataplane.erasure.erased_before_restore import LastingRecords
from learnloop_dataplane.errors import ApiServerRefused
from testing.servers.data_plane_process import Product
from testing.servers.token_issuer import Cluster

from ..conftest import Api, eventually, running, settings


def _sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _head(body: bytes, **more: str) -> dict[str, str]:
    return {"x-learnloop-sha256": _sha(body), **more}


async def _put(api: Api, body: bytes, status: int = 201, **kwargs):
    return await api.call("PUT", "/api/v1/artifacts", status, content=body, headers=_head(body), **kwargs)


async def test_an_artifact_is_read_back_by_its_digest_and_by_nobody_else(api: Api) -> None:
    body = os.urandom(3 * 2**20 + 7)
    stored = await _put(api, body)
    assert stored == {"uri": f"learnloop://team-a/{_sha(body)}", "sha256": _sha(body), "size_bytes": len(body)}
    assert await _put(api, body) == stored
    answer = await api.call("GET", f"/api/v1/artifacts/{_sha(body)}")
    assert answer.content == body
    assert answer.headers["x-learnloop-sha256"] == _sha(body)
    await api.call("GET", f"/api/v1/artifacts/{_sha(body)}", 404, namespace="team-b")
    await api.call("GET", "/api/v1/artifacts/not-a-digest", 422)


async def test_bytes_that_are_not_what_they_say_leave_nothing(api: Api, tmp_path: Path) -> None:
    refused = await api.call("PUT", "/api/v1/artifacts", 422, content=b"abc", headers=_head(b"xyz"))
    assert refused["error"]["field"] == "x-learnloop-sha256"
    await api.call("GET", f"/api/v1/artifacts/{_sha(b'xyz')}", 404)
    await _put(api, b"", 422)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_a_process_that_is_killed_during_an_upload_leaves_nothing_on_its_disk(dsn, tmp_path, monkeypatch):
    (disk := tmp_path / "disk").mkdir()
    monkeypatch.setenv("TMPDIR", str(disk))
    head = {"Host": "x", "X-LearnLoop-Namespace": "team-a", "Content-Length": "9999999", **_head(b"")}
    sent = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    with Product(dsn, tmp_path, tmp_path) as product, socket.create_connection(("127.0.0.1", product.port)) as sender:
        sender.sendall(f"PUT /api/v1/artifacts HTTP/1.1\r\n{sent}\r\n".encode() + bytes(2**20))
        opened = Path(f"/proc/{product.pid}/fd")
        await eventually(lambda: any(str(disk) in os.path.realpath(file) for file in opened.iterdir()))
        product.kill()
    assert not list(disk.iterdir())


async def test_what_is_too_large_is_refused_with_the_limit(dsn: str, tmp_path: Path) -> None:
    async with running(**settings(dsn, tmp_path, max_artifact_bytes=1000, max_body_bytes=2000)) as api:

        async def endless():
            for _ in range(50):
                yield b"x" * 100

        for content in (b"x" * 1001, endless()):
            headers = {"x-learnloop-sha256": _sha(b"")}
            refused = await api.call("PUT", "/api/v1/artifacts", 413, content=content, headers=headers)
            assert "1000 bytes" in refused["error"]["message"]
        refused = await api.call("PUT", "/api/v1/agents/a", 413, content=b"x" * 2001)
        assert "2000 bytes" in refused["error"]["message"]


async def test_a_checkpoint_replaces_the_last_and_two_are_kept(api: Api, tmp_path: Path) -> None:
    path = "/api/v1/training/runs/job/checkpoint"
    await api.call("GET", path, 404)
    for step in (100, 200, 300):
        body = f"weights {step}".encode()
        info = await api.call("PUT", path, content=body, headers=_head(body, **{"x-learnloop-step": str(step)}))
        assert (info["step"], info["sha256"]) == (step, _sha(body))
    answer = await api.call("GET", path)
    assert (answer.content, answer.headers["x-learnloop-step"]) == (b"weights 300", "300")
    assert (await api.call("GET", "/api/v1/training/runs/job"))["checkpoint"]["step"] == 300
    blobs = [file for file in (tmp_path / "team-a").rglob("*") if file.is_file()]
    assert sorted(file.read_bytes() for file in blobs) == [b"weights 200", b"weights 300"]
    await api.call("DELETE", "/api/v1/training/runs/job", 204)
    await api.call("GET", "/api/v1/training/runs/job", 404)
    assert [file for file in (tmp_path / "team-a").rglob("*") if file.is_file()] == []


async def test_a_checkpoint_says_of_whom_it_is_and_how_good_it_was(api: Api) -> None:
    recent = {"episodes": 10, "mean": 21.0, "iqm": 20.0, "ci_low": 15.0, "ci_high": 25.0}
    await api.call("PUT", "/api/v1/training/runs/told/heartbeat", json=_beat(job="told", step=90, recent_return=recent))
    named, bad = {"x-learnloop-agent": "runner"}, {"x-learnloop-agent": "no name"}
    for job, agent in (("told", named), ("by-hand", {})):
        headers = _head(b"x", **{"x-learnloop-step": "100"}, **agent)
        await api.call("PUT", f"/api/v1/training/runs/{job}/checkpoint", content=b"x", headers=headers)
    headers = _head(b"x", **{"x-learnloop-step": "100"}, **bad)
    refused = await api.call("PUT", "/api/v1/training/runs/told/checkpoint", 422, content=b"x", headers=headers)
    assert refused["error"]["field"] == "x-learnloop-agent"
    async with api.db.tenant("team-a") as connection:
        rows = await connection.fetch("SELECT job, agent_id, performance_metrics FROM model_checkpoints")
    assert {row["job"]: (row["agent_id"], json.loads(row["performance_metrics"])) for row in rows} == {
        "told": ("runner", {"step": 90, "steps_per_second": 50.0, "recent_return": recent}),
        "by-hand": (None, {}),
    }


def _beat(**changes) -> dict:
    return {
        "job": "runner", "attempt": 0, "phase": "training", "step": 10, "total_steps": 100, "world_size": 2,
        "steps_per_second": 50.0, "at": "2026-01-31T12:00:00Z",
    } | changes  # fmt: skip


async def test_an_older_attempt_never_overwrites_a_newer_one(api: Api) -> None:
    path = "/api/v1/training/runs/runner/heartbeat"
    assert (await api.call("PUT", path, json=_beat(attempt=1)))["accepted"]
    for stale in (_beat(attempt=0, step=90, at="2026-01-31T13:00:00Z"), _beat(attempt=1, at="2026-01-31T11:00:00Z")):
        assert not (await api.call("PUT", path, json=stale))["accepted"]
    await asyncio.sleep(0.05)
    run = await api.call("GET", "/api/v1/training/runs/runner")
    assert (run["heartbeat"]["attempt"], run["heartbeat"]["step"]) == (1, 10)
    assert 0.05 <= run["heartbeat_age_seconds"] < 600, "the age is by the server's clock"
    async with api.db.tenant("team-a") as connection:
        await connection.execute("UPDATE training_runs SET received_at = now() + interval '1 hour'")
    run = await api.call("GET", "/api/v1/training/runs/runner")
    assert run["heartbeat_age_seconds"] == 0, "a standby's clock may be behind"
    refused = await api.call("PUT", path, 409, json=_beat(job="another"))
    assert (refused["error"]["field"], refused["error"]["value"]) == ("job", "another")


async def test_a_proof_never_changes(api: Api) -> None:
    estimate = {"episodes": 10, "mean": 1.0, "iqm": 1.0, "ci_low": 0.5, "ci_high": 1.5}
    proof = {
        "job": "proof", "algorithm": "ppo", "environment": "CartPole-v1", "seed": 1, "step": 9, "total_steps": 9,
        "world_size": 1, "attempts": 1, "artifact_uri": "learnloop://team-a/x", "artifact_sha256": "a" * 64,
        "artifact_bytes": 1, "checkpoint_sha256": "b" * 64, "baseline": estimate, "evaluation": estimate,
        "parity": {
            "observations": 1, "recorded": 0, "max_abs_difference": 0.0, "action_agreement": 1.0, "passed": True,
        },
        "wall_seconds": 5.0, "created_at": "2026-01-31T12:00:00Z",
    }  # fmt: skip
    path = "/api/v1/training/runs/proof/proof"
    await api.call("PUT", path, json=proof)
    await api.call("PUT", path, json=proof)
    await api.call("PUT", path, 409, json=proof | {"seed": 2})
    assert (await api.call("GET", "/api/v1/training/runs/proof"))["proof"]["seed"] == 1

    # Each update of a rank that stays has a proof of its own, in the order of their numbers.
    order = {"number": 2, "goes_on": True, "baseline_uri": "learnloop://team-a/x"}
    await api.call("PUT", "/api/v1/training/runs/proof/update", json=order)
    for later in ({"goes_on": False}, {"number": 1}):
        assert (await api.call("PUT", "/api/v1/training/runs/proof/update", json=order | later))["goes_on"] is True
    await api.call("PUT", path, json=proof | {"update": 2, "seed": 3})
    await api.call("PUT", path, 409, json=proof | {"update": 1, "seed": 2, "attempts": 2})
    run = await api.call("GET", "/api/v1/training/runs/proof")
    assert (run["proof"]["seed"], run["update"]["number"]) == (3, 2)


async def test_the_same_registry_on_s3(dsn: str, tmp_path: Path, s3) -> None:
    async with running(**settings(dsn, tmp_path, artifacts="s3://models/learnloop")) as api:
        body = os.urandom(6 * 2**20)
        await _put(api, body, namespace="cloud")
        answer = await api.call("GET", f"/api/v1/artifacts/{_sha(body)}", namespace="cloud")
        assert answer.content == body
        await api.call("POST", "/api/v1/erasure", json={"agent_id": "walker"}, namespace="cloud")
        recorded = await LastingRecords(api.plane.shared.plain_blobs).all()
        assert list(recorded["cloud"].erased) == ["agent/walker"], "erasures outlive the database there, too"
        s3.stop()
        refused = await api.call(
            "PUT", "/api/v1/artifacts", 503, content=b"new", headers=_head(b"new"), namespace="cloud"
        )
        assert "S3" in refused["error"]["message"]


async def test_a_checkpoint_that_was_begun_before_a_training_job_waited_for_the_run_is_not_kept(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Knowing a job's name must not let a caller plant its gang's checkpoint: by bytes that are sent slowly."""
    jobs: set[str] = set()

    async def request(_: KubeApi, method: str, path: str, **__):
        if path.rpartition("/")[2] in jobs:
            return {"metadata": {"uid": "job-1", "name": "soon"}}
        raise ApiServerRefused(404, "not found", field=None)

    monkeypatch.setattr(KubeApi, "request", request)
    cluster, own, content = Cluster(), tmp_path / "token", b"planted"
    own.write_text(cluster.token())

    async def slowly() -> AsyncIterator[bytes]:
        yield content[:3]
        jobs.add("soon")
        yield content[3:]

    with cluster.served() as url:
        values = settings(dsn, tmp_path, auth="jwks", jwks_url=url, jwks_token_file=str(own))
        async with running(**values) as api:
            headers = {
                "Authorization": f"Bearer {cluster.token()}",
                "x-learnloop-sha256": hashlib.sha256(content).hexdigest(),
                "x-learnloop-step": "7",
            }
            path = "/api/v1/training/runs/soon"
            answer = await api.client.put(f"{path}/checkpoint", content=slowly(), headers=headers)
            assert (answer.status_code, "only the ranks" in answer.text) == (403, True), answer.text
            assert (await api.client.get(path, headers=headers)).status_code == 404


async def test_a_gang_that_was_followed_by_another_one_replaces_no_checkpoint(api: Api, tmp_path: Path) -> None:
    run = "/api/v1/training/runs/followed"

    async def put(content: bytes, status: int, **more: str) -> None:
        headers = {"x-learnloop-sha256": hashlib.sha256(content).hexdigest(), "x-learnloop-step": "9", **more}
        await api.call("PUT", f"{run}/checkpoint", status, content=content, headers=headers)

    async def newest() -> bytes:
        return bytes((await api.call("GET", f"{run}/checkpoint")).content)

    await put(b"first", 200, **{"x-learnloop-attempt": "0"})
    await api.call("PUT", f"{run}/heartbeat", json=_beat(job="followed", attempt=1))
    await put(b"late", 409, **{"x-learnloop-attempt": "0"})
    assert await newest() == b"first"
    await put(b"second", 200, **{"x-learnloop-attempt": "1"})
    await put(b"of a trainer from before", 200)
    assert await newest() == b"of a trainer from before"
    checkpoints = [path for path in (tmp_path / "team-a/checkpoints/followed").iterdir()]
    assert len(checkpoints) == 2, "the refused one leaves no bytes"
