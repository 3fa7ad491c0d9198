"""Messages are delivered with one id each, through failures and kills: real HTTP, real processes."""

import base64
import hashlib
import hmac
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from os import getpid
from pathlib import Path

from learnloop_api import events, names
from learnloop_dataplane.notifications import daily_reports, webhook_outbox
from testing.servers.data_plane_process import Product
from testing.servers.recording_server import DataPlane as Recorder

from ..conftest import eventually, running, settings

DEPLOYED = events.EVENTS[names.SUBJECT_MODEL_DEPLOYED][1]
STATUS = events.EVENTS[names.SUBJECT_TRAINING_STATUS][1]


def webhook(directory: Path, recorder: Recorder, **more) -> dict:
    """The settings of a webhook on this machine."""
    (directory / "webhook-key").write_text("a-key")
    setting = {"url": f"{recorder.url}/ops", **more}
    return {"notifications": json.dumps(setting), "notifications_key_file": str(directory / "webhook-key")}


async def test_a_message_is_signed_and_tried_again_until_it_is_delivered(migrated, tmp_path, monkeypatch):
    monkeypatch.setattr(webhook_outbox, "FIRST_PAUSE", 0.2)
    recorder = Recorder()
    recorder.answers["/ops"] = (503, b"busy")
    values = webhook(tmp_path, recorder, events=["model.rolled_back"])
    async with running(**settings(migrated(f"told_{getpid()}"), tmp_path, **values)) as api:
        await api.call("PUT", "/api/v1/models/walker/deployed", json=DEPLOYED)
        taken = {**DEPLOYED, "event": "rolled_back", "revision": "bad0bad0", "reason": "ReturnWorse"}
        await api.call("PUT", "/api/v1/models/walker/rolled-back", json=taken)

        await eventually(lambda: len(recorder.bodies("/ops")) >= 3)
        recorder.answers.pop("/ops")

        async def delivered() -> bool:
            async with api.db.tenant("team-a") as connection:
                rows = await connection.fetch("SELECT event, delivered_at FROM notifications")
            return [row["event"] for row in rows if row["delivered_at"]] == ["model.rolled_back"] and len(rows) == 1

        await eventually(delivered)
    _, body, headers = next(post for post in reversed(recorder.posts) if post[0] == "/ops")
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mark = base64.b64encode(hmac.new(b"a-key", signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{mark}"
    assert headers["content-type"].startswith("application/cloudevents+json")
    event = json.loads(body)
    assert event["id"] == headers["webhook-id"]
    assert event["data"]["text"].startswith("walker: bad0bad0 was rolled back")


async def test_an_approval_is_escalated_unless_it_is_answered(migrated: Callable[[str], str], tmp_path: Path) -> None:
    recorder, awaited = Recorder(), "/api/v1/models/walker/awaited-approval"
    values = webhook(tmp_path, recorder, events=["approval.waiting"], escalateAfter="2s")
    body = {
        "model_deployment": "walker",
        "revision": "3f9a2c81",
        "step": 2,
        "since": "2026-01-31T12:00:00Z",
        "until": "2199-01-31T12:00:00Z",
        "otherwise": "roll_back",
    }

    def posted(kind: str) -> list:
        events = map(json.loads, recorder.bodies("/ops"))
        return [event for event in events if event["type"] == f"dev.learnloop.{kind}"]

    async with running(**settings(migrated(f"asked_{getpid()}"), tmp_path, **values)) as api:
        for name in ("walker", "runner"):
            path = awaited.replace("walker", name)
            for _ in range(2):
                await api.call("PUT", path, 204, json={**body, "model_deployment": name})

        await eventually(lambda: len(posted("approval.waiting")) == 2)
        await api.call("DELETE", awaited.replace("walker", "runner"), 204)

        await eventually(lambda: len(posted("approval.escalated")) == 1)
        assert len(posted("approval.waiting")) == 2, "sent once"
        (escalated,) = posted("approval.escalated")
        data = escalated["data"]
        assert data["text"].startswith("walker: 3f9a2c81 still waits for approval at step 2.")
        assert data["command"] == "kubectl learnloop approve walker -n team-a"

        async def recorded() -> bool:
            page = await api.call("GET", "/api/v1/audit/records")
            holds = [item for item in page["records"] if item["action"] == "rollout.held"]
            about = sorted(item["subject"] for item in holds)
            if about != ["model-deployment/runner", "model-deployment/walker"]:
                return False
            held = {key: holds[-1]["detail"][key] for key in ("revision", "step", "otherwise")}
            return held == {"revision": "3f9a2c81", "step": 2, "otherwise": "roll_back"}

        await eventually(recorded)


async def test_nothing_that_a_sentence_holds_keeps_others_from_being_asked_or_told(migrated, tmp_path):
    recorder = Recorder()
    values = webhook(tmp_path, recorder, events=["approval.waiting", "training.failed"])
    evil = "said \x00 \x1b[2J \u202e \\u0000 {} %s"
    async with running(**settings(migrated(f"evil_{getpid()}"), tmp_path, **values)) as api:
        error = {"reason": "GatesFailed", "message": evil}
        failed = {**STATUS, "job": "walker-7", "job_uid": "u", "status": "failed", "phase": "failed", "error": error}
        await api.call("PUT", "/api/v1/training/runs/walker-7/status", json=failed)
        request = {"revision": "3f9a2c81", "step": 2, "since": "2026-01-31T12:00:00Z", "message": evil}
        for name in ("walker", "runner"):
            path = f"/api/v1/models/{name}/awaited-approval"
            await api.call("PUT", path, 204, json={**request, "model_deployment": name})
        await api.call("DELETE", "/api/v1/models/other/awaited-approval", 204)

        async def all_delivered() -> bool:
            return {json.loads(body)["subject"] for body in recorder.bodies("/ops")} >= {"walker", "runner", "walker-7"}

        async def recorded() -> bool:
            return bool((await api.call("GET", "/api/v1/audit/records"))["records"])

        await eventually(all_delivered)
        await eventually(recorded)


async def test_a_report_is_sent_once_whichever_process_writes_it(migrated, tmp_path, monkeypatch):
    moment = [datetime(2000, 1, 1, tzinfo=UTC)]
    monkeypatch.setattr(daily_reports, "due", lambda now, hour: moment[0])
    recorder = Recorder()
    values = webhook(tmp_path, recorder, events=["report.daily"])
    dsn = migrated(f"report_{getpid()}")
    for _ in range(2):
        async with running(**settings(dsn, tmp_path, **values)) as api:
            await api.call("PUT", "/api/v1/models/walker/deployed", json=DEPLOYED)
            if moment[0].year == 2000:  # the report is due once there is something to tell
                moment[0] = datetime.now(UTC) + timedelta(seconds=1)

            await eventually(lambda: len(recorder.bodies("/ops")) == 1)
    (body,) = recorder.bodies("/ops")
    assert json.loads(body)["type"] == "dev.learnloop.report.daily"
    assert "1 models were deployed" in json.loads(body)["data"]["text"]


def test_killed_again_and_again_nothing_is_lost_and_nothing_has_two_ids(migrated, postgres, tmp_path):
    recorder = Recorder()
    values = {name.upper(): value for name, value in webhook(tmp_path, recorder).items()}
    product = Product(migrated(f"killed_{getpid()}"), tmp_path, tmp_path, **values)
    wanted = 0
    for round_ in range(3):
        product.start()
        for number in range(10):
            job = f"run-{round_}-{number}"
            body = {**STATUS, "job": job, "job_uid": job, "status": "completed", "phase": "validated"}
            product.post(f"/api/v1/training/runs/{job}/status", body, "PUT")
            wanted += 1
        time.sleep(0.3 * round_)
        _kill(product)
    product.start()
    try:
        deadline = time.monotonic() + 150
        while len(_sent(recorder)) < wanted and time.monotonic() < deadline:
            time.sleep(0.5)
    finally:
        _kill(product)
    counts = _sent(recorder)
    assert len(counts) == wanted, "0 lost"
    assert set(counts.values()) == {1}, "0 with two ids: who keeps the ids sees each once"


def _kill(product: Product) -> None:
    os.kill(product._process.pid, signal.SIGKILL)
    product._process.wait()


def _sent(recorder: Recorder) -> Counter[str]:
    """The number of different ids of each run's notifications."""
    ids = {(json.loads(body)["subject"], json.loads(body)["id"]) for body in recorder.bodies("/ops")}
    return Counter(subject for subject, _ in ids)
