"""What is said, and how each kind of receiver wants it."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any

import orjson

from learnloop_api import names
from learnloop_common.foreign_text import one_line, shown
from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.notifications.receivers import Mail

MOST_TEXT = 3000
"""Characters of a text in one of Slack's blocks; a longer one has the whole message refused, each time."""
GOOD = ("training.completed", "model.deployed", "approval.waiting", "report.daily", "report.weekly")
PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
CODED = "whsec_"
"""Before a key in Base64, by the Standard Webhooks specification."""


def event_of(subject: str, payload: Mapping[str, Any]) -> str | None:
    """Which of the events people are told of this is; None: none of them."""
    if subject.startswith(f"{names.SUBJECT_TRAINING_STATUS}."):
        return {"completed": "training.completed", "failed": "training.failed"}.get(str(payload.get("status")))
    if subject.startswith(f"{names.SUBJECT_MODEL_DEPLOYED}."):
        return f"model.{payload.get('event', 'deployed')}"
    return None


def cloud_event(message_id: str, namespace: str, event: str, at: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """CloudEvents 1.0, structured mode; `id` is the same however often it is sent."""
    name = str(payload.get("job") or payload.get("model_deployment") or namespace)
    return {
        "specversion": "1.0",
        "id": message_id,
        "source": f"/learnloop/{namespace}",
        "type": f"dev.learnloop.{event}",
        "subject": name,
        "time": at,
        "datacontenttype": "application/json",
        "data": dict(payload),
    }


def sentence(event: str, payload: Mapping[str, Any]) -> str:
    """One line for people, whatever others have written into it; of a report, all its lines."""
    if event.startswith("report."):
        return shown(str(payload["text"]))[:MOST_TEXT]
    return one_line(_sentence(event, payload))[:MOST_TEXT]


def _sentence(event: str, payload: Mapping[str, Any]) -> str:
    if event.startswith("training."):
        end = "is validated" if event == "training.completed" else "failed"
        said = (payload.get("error") or {}).get("message") or payload.get("message") or ""
        return f"{payload.get('job')} {end}: {said}"
    if event.startswith("approval."):
        where = f"at step {payload['step']}" if payload.get("step") else "at its gates"
        still = "still waits" if event == "approval.escalated" else "waits"
        what = {"roll_back": "it is rolled back", "hold": "it stalls"}[str(payload.get("otherwise") or "hold")]
        end = f" By {payload['until']} {what}." if payload.get("until") else ""
        asked = f"{payload.get('model_deployment')}: {payload.get('revision')} {still} for approval {where}."
        return f"{asked}{end} {payload.get('message') or ''}".strip()
    done = "was rolled back" if event == "model.rolled_back" else "serves everybody"
    return f"{payload.get('model_deployment')}: {payload.get('revision')} {done}: {payload.get('verdict')}"


def next_step(event: str, namespace: str, payload: Mapping[str, Any]) -> str:
    """What somebody may do about it, under their own name; "" where nothing is to be done."""
    name = payload.get("job") or payload.get("model_deployment")
    if event.startswith("report."):
        return f"kubectl learnloop report --since {'day' if event == 'report.daily' else 'week'} -n {namespace}"
    if event.startswith("approval."):
        known = f" --reference {payload['reference']}" if payload.get("reference") else ""
        return f"kubectl learnloop approve {name} -n {namespace}{known}"
    kind = "trace" if event.startswith("training.") else "why"
    return f"kubectl learnloop {kind} {name} -n {namespace}"


def signed(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Headers of the Standard Webhooks specification: HMAC-SHA256 over id, time and body, by each key of `secret`. A
    receiver takes the message when one of the signatures is by the key that it knows."""
    content = f"{message_id}.{timestamp}.".encode() + body
    marks = [hmac.digest(_webhook_key(key), content, "sha256") for key in KeyLines.parse(secret).values]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(mark).decode()}" for mark in marks),
    }


def _webhook_key(secret: str) -> bytes:
    """Raises ValueError: a key that everybody could guess, such as none. What stands there is not told."""
    if not secret.startswith(CODED):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(CODED), validate=True)
    except ValueError:
        key = b""
    if not key:
        raise ValueError(f"the secret's {CODED} is not followed by a key in Base64: make a new one")
    return key


def slack(namespace: str, event: str, payload: Mapping[str, Any], link: str) -> bytes:
    """An incoming webhook of Slack: blocks, with the sentence as the fallback. Others' words are plain text: Slack
    makes no links, mentions or pictures of them."""
    said = sentence(event, payload)
    rows = [f"`{next_step(event, namespace, payload)}`", f"<{link}|open>" if link else ""]
    blocks = [
        {"type": "section", "text": {"type": "plain_text", "emoji": False, "text": said}},
        {"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(filter(None, rows))}},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": f"{namespace} · {event}"}]},
    ]
    return orjson.dumps({"text": _escaped(said), "blocks": blocks})


def teams(namespace: str, event: str, payload: Mapping[str, Any], link: str) -> bytes:
    """An incoming webhook of Teams: an Adaptive Card. Runs of text, for in a TextBlock others' words would be markdown
    with links of their own."""
    lines = [*sentence(event, payload).splitlines(), next_step(event, namespace, payload), f"{namespace} · {event}"]
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": line}]} for line in lines if line],
    }
    if link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open", "url": link}]
    content = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return orjson.dumps({"type": "message", "attachments": [content]})


def pagerduty(key: str, message_id: str, namespace: str, event: str, payload: Mapping[str, Any], link: str) -> bytes:
    """Events API v2. `dedup_key` makes a repeated message no second incident."""
    return orjson.dumps(
        {
            "routing_key": key,
            "event_action": "trigger",
            "dedup_key": message_id[:255],
            "links": [{"href": link, "text": "open"}] if link else [],
            "payload": {
                "summary": sentence(event, payload)[:1024],
                "source": f"learnloop/{namespace}",
                "severity": "info" if event in GOOD else "error",
                "component": str(payload.get("job") or payload.get("model_deployment") or namespace),
            },
        }
    )


def mail(
    settings: Mail, message_id: str, namespace: str, event: str, payload: Mapping[str, Any], link: str
) -> EmailMessage:
    """Plain text. The Message-ID is the same however often it is sent, so that mail servers drop a second one."""
    text = sentence(event, payload)
    message = EmailMessage()
    message["Subject"] = one_line(f"[learnloop {namespace}] {text.partition(chr(10))[0]}")[:200]
    message["From"], message["To"] = settings.sender, ", ".join(settings.to)
    message["Message-ID"] = f"<{hashlib.sha256(message_id.encode()).hexdigest()[:32]}@learnloop>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("\n\n".join(filter(None, [text, next_step(event, namespace, payload), link])) + "\n")
    return message


def _escaped(text: str) -> str:
    """Slack reads &, < and > as its own signs."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
