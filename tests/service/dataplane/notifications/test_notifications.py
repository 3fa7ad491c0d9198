"""Receivers are told once by id, whatever fails or is killed between: real HTTP, real SMTP, real processes."""

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
from typing import Any

import pytest

from learnloop_api import events, names
from learnloop_dataplane.notifications import outbox, reports
from testing.servers.data_plane_process import Product
from testing.servers.recording_server import DataPlane as Recorder
from testing.servers.smtp_server import Smtp

from ..conftest import eventually, running, settings

DEPLOYED = events.EVENTS[names.SUBJECT_MODEL_DEPLOYED][1]
STATUS = events.EVENTS[names.SUBJECT_TRAINING_STATUS][1]


def receivers(directory: Path, recorder: Recorder, smtp: Smtp | None = None) -> dict[str, Any]:
    """The settings that tell a webhook, Slack and a mail server on this machine."""
    (directory / "secrets").mkdir(exist_ok=True)
    (directory / "secrets" / "key").write_text("a-key")
    (directory / "secrets" / "slack").write_text(f"{recorder.url}/slack")
    found: list[dict[str, Any]] = [
        {"name": "ops", "type": "webhook", "url": f"{recorder.url}/ops", "secret": "key", "privateAddresses": True},
        {
            "name": "chat",
            "type": "slack",
            "secret": "slack",
            "events": ["model.rolled_back"],
            "privateAddresses": True,
        },
        {"name": "inside", "type": "slack", "url": f"{recorder.url}/inside"},
    ]
    if smtp is not None:
        mail = {"host": "127.0.0.1", "port": smtp.port, "security": "none", "sender": "a@example.org"}
        mail |= {"to": ["b@example.org"]}
        found.append({"name": "mail", "type": "email", "email": mail, "privateAddresses": True})
        found.append({"name": "strange-mail", "type": "email", "email": mail | {"security": "starttls"}})
    return {"notifications": json.dumps({"receivers": found}), "notifications_secrets": str(directory / "secrets")}


async def test_each_receiver_is_told_what_it_wants_signed_and_tried_again_until_it_takes_it(
    migrated: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "FIRST_PAUSE", 0.2)
    recorder, smtp = Recorder(), Smtp()
    recorder.answers["/ops"] = (503, b"busy")
    smtp.busy = True
    values = settings(migrated(f"told_{getpid()}"), tmp_path, **receivers(tmp_path, recorder, smtp))
    async with running(**values) as api:
        await api.call("PUT", "/api/v1/models/walker/deployed", json=DEPLOYED)
        taken = {**DEPLOYED, "event": "rolled_back", "revision": "bad0bad0", "reason": "ReturnWorse"}
        await api.call("PUT", "/api/v1/models/walker/rolled-back", json=taken)

        async def tried() -> bool:
            return len(recorder.bodies("/ops")) >= 3

        await eventually(tried)
        recorder.answers.pop("/ops")
        smtp.busy = False

        async def all_taken() -> bool:
            async with api.db.tenant("team-a") as connection:
                rows = await connection.fetch("SELECT receiver, delivered_at, problem FROM notifications")
            open_ = {row["receiver"] for row in rows if row["delivered_at"] is None}
            return open_ == {"inside", "strange-mail"}

        await eventually(all_taken)
        async with api.db.tenant("team-a") as connection:
            asked = "SELECT problem FROM notifications WHERE receiver = $1 LIMIT 1"
            why = {name: await connection.fetchval(asked, name) for name in ("inside", "strange-mail")}
        for said in why.values():
            assert "privateAddresses: true" in said, "no message goes inside unless that is meant"
    assert recorder.bodies("/inside") == []
    assert len(recorder.bodies("/slack")) == 1, "it wants rollbacks only"
    assert len(smtp.mails) == 2
    assert any("walker: bad0bad0 was rolled back" in mail for mail in smtp.mails)
    _, body, headers = next(post for post in reversed(recorder.posts) if post[0] == "/ops")
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mark = base64.b64encode(hmac.new(b"a-key", signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{mark}"
    assert headers["content-type"].startswith("application/cloudevents+json")
    assert json.loads(body)["id"] == headers["webhook-id"]


async def test_who_waits_for_an_answer_is_escalated_unless_somebody_answers(
    migrated: Callable[[str], str], tmp_path: Path
) -> None:
    recorder, asked = Recorder(), "/api/v1/models/walker/awaited-approval"
    values = receivers(tmp_path, recorder)
    told = json.loads(values["notifications"])
    told["receivers"][0]["events"] = ["approval.waiting"]
    told["receivers"][1]["events"] = ["training.failed"]
    told["escalations"] = [{"after": "2s", "to": ["chat"]}]
    key = base64.b64encode(b"k" * 32).decode()
    values |= {"notifications": json.dumps(told), "audit_key": key}
    body = {
        "model_deployment": "walker",
        "revision": "3f9a2c81",
        "step": 2,
        "since": "2026-01-31T12:00:00Z",
        "until": "2199-01-31T12:00:00Z",
        "otherwise": "roll_back",
    }
    async with running(**settings(migrated(f"asked_{getpid()}"), tmp_path, **values)) as api:
        for name in ("walker", "runner"):
            path = asked.replace("walker", name)
            for _ in range(2):
                await api.call("PUT", path, 204, json={**body, "model_deployment": name})

        async def first() -> bool:
            return len(recorder.bodies("/ops")) == 2

        await eventually(first)
        await api.call("DELETE", asked.replace("walker", "runner"), 204)

        async def later() -> bool:
            return len(recorder.bodies("/slack")) == 1

        await eventually(later)
        assert len(recorder.bodies("/ops")) == 2, "told once"
        said = json.loads(recorder.bodies("/slack")[0])
        assert said["text"].startswith("walker: 3f9a2c81 still waits for approval at step 2.")
        asked_of = {json.loads(item)["subject"]: json.loads(item)["data"] for item in recorder.bodies("/ops")}
        reference = asked_of["walker"]["reference"]
        assert f"approve walker -n team-a --reference {reference}" in said["blocks"][1]["text"]["text"]
        found = await api.call("POST", "/api/v1/models/walker/approval-reference", json={"reference": reference})
        assert (found["revision"], found["step"]) == ("3f9a2c81", 2)
        for wrong, why in ((reference[:-3] + "AAA", "not ours"), ("x", "no reference")):
            refused = await api.call("POST", "/api/v1/models/walker/approval-reference", 422, json={"reference": wrong})
            assert why in refused["error"]["message"]
        other = await api.call(
            "POST", "/api/v1/models/walker/approval-reference", 422, "team-b", json={"reference": reference}
        )
        assert "another namespace" in other["error"]["message"]

        async def recorded() -> bool:
            page = await api.call("GET", "/api/v1/audit/records")
            found = [item for item in page["records"] if item["action"] == "rollout.held"]
            about = sorted(item["subject"] for item in found)
            if about != ["model-deployment/runner", "model-deployment/walker"]:
                return False
            held = {key: found[-1]["detail"][key] for key in ("revision", "step", "otherwise")}
            return held == {"revision": "3f9a2c81", "step": 2, "otherwise": "roll_back"}

        await eventually(recorded)


async def test_nothing_that_a_sentence_holds_keeps_others_from_being_asked_or_told(
    migrated: Callable[[str], str], tmp_path: Path
) -> None:
    recorder = Recorder()
    values = receivers(tmp_path, recorder)
    told = json.loads(values["notifications"])
    told["receivers"][0]["events"] = ["approval.waiting", "training.failed"]
    values |= {"notifications": json.dumps(told)}
    evil = "said \x00 \x1b[2J \u202e \\u0000 {} %s"
    async with running(**settings(migrated(f"evil_{getpid()}"), tmp_path, **values)) as api:
        error = {"reason": "GatesFailed", "message": evil}
        failed = {**STATUS, "job": "walker-7", "job_uid": "u", "status": "failed", "phase": "failed", "error": error}
        await api.call("PUT", "/api/v1/training/runs/walker-7/status", json=failed)
        asked = {"revision": "3f9a2c81", "step": 2, "since": "2026-01-31T12:00:00Z", "message": evil}
        for name in ("walker", "runner"):
            path = f"/api/v1/models/{name}/awaited-approval"
            await api.call("PUT", path, 204, json={**asked, "model_deployment": name})
        await api.call("DELETE", "/api/v1/models/other/awaited-approval", 204)

        async def all_told() -> bool:
            return {json.loads(body)["subject"] for body in recorder.bodies("/ops")} >= {"walker", "runner", "walker-7"}

        await eventually(all_told)
        assert (await api.call("GET", "/api/v1/audit/records"))["records"]


async def test_a_report_is_sent_once_whichever_process_writes_it(
    migrated: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = [datetime(2000, 1, 1, tzinfo=UTC)]
    monkeypatch.setattr(reports, "due", lambda now, period, hour: moment[0])
    recorder = Recorder()
    values = receivers(tmp_path, recorder)
    told = json.loads(values["notifications"])
    told["receivers"][0]["events"] = ["report.daily"]
    values["notifications"] = json.dumps(told)
    dsn = migrated(f"report_{getpid()}")
    for _ in range(2):
        async with running(**settings(dsn, tmp_path, **values)) as api:
            await api.call("PUT", "/api/v1/models/walker/deployed", json=DEPLOYED)
            if moment[0].year == 2000:  # the report is due once there is something to tell
                moment[0] = datetime.now(UTC) + timedelta(seconds=1)

            async def sent() -> bool:
                return len(recorder.bodies("/ops")) == 1

            await eventually(sent)
    (body,) = recorder.bodies("/ops")
    assert json.loads(body)["type"] == "dev.learnloop.report.daily"
    assert "1 models came to serve everybody" in json.loads(body)["data"]["text"]


def test_killed_again_and_again_nothing_is_lost_and_nothing_has_two_ids(
    migrated: Callable[[str], str], postgres: Any, tmp_path: Path
) -> None:
    recorder = Recorder()
    values = {name.upper(): value for name, value in receivers(tmp_path, recorder).items()}
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
        while len(_told(recorder)) < wanted and time.monotonic() < deadline:
            time.sleep(0.5)
    finally:
        _kill(product)
    told = _told(recorder)
    assert len(told) == wanted, "0 lost"
    assert set(told.values()) == {1}, "0 with two ids: who keeps the ids sees each once"


def _kill(product: Product) -> None:
    assert product._process is not None
    os.kill(product._process.pid, signal.SIGKILL)
    product._process.wait()


def _told(recorder: Recorder) -> Counter[str]:
    """How many different ids each run was told of by."""
    found = {(json.loads(body)["subject"], json.loads(body)["id"]) for body in recorder.bodies("/ops")}
    return Counter(subject for subject, _ in found)
