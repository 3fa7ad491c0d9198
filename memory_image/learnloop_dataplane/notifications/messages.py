"""The content of messages: CloudEvents with a sentence for people and the command that comes next."""

from collections.abc import Mapping
from typing import Any

from learnloop_api import names
from learnloop_common.foreign_text import plain

MOST_TEXT = 3000


def event_of(subject: str, payload: Mapping[str, Any]) -> str | None:
    """The notification that belongs to an event of the outbox; None: it has none."""
    if subject.startswith(f"{names.SUBJECT_TRAINING_STATUS}."):
        return {"completed": "training.completed", "failed": "training.failed"}.get(str(payload.get("status")))
    if subject.startswith(f"{names.SUBJECT_MODEL_DEPLOYED}."):
        return f"model.{payload.get('event', 'deployed')}"
    return None


def cloud_event(message_id: str, namespace: str, event: str, at: str, payload: Mapping[str, Any]) -> dict[str, Any]:
    """CloudEvents 1.0, structured mode; `id` is the same however often it is sent."""
    return {
        "specversion": "1.0",
        "id": message_id,
        "source": f"/learnloop/{namespace}",
        "type": f"dev.learnloop.{event}",
        "subject": str(payload.get("job") or payload.get("model_deployment") or namespace),
        "time": at,
        "datacontenttype": "application/json",
        "data": {
            **payload,
            "text": sentence(event, payload)[:MOST_TEXT],
            "command": next_step(event, namespace, payload),
        },
    }


def sentence(event: str, payload: Mapping[str, Any]) -> str:
    """One line of safe markdown: text of tenants cannot mention people or make links. A report has several lines."""
    if event == "report.daily":
        return str(payload["text"])
    if event.startswith("training."):
        job = plain(str(payload.get("job")))
        outcome = "is validated" if event == "training.completed" else "failed"
        why = (payload.get("error") or {}).get("message") or payload.get("message") or ""
        return f"{job} {outcome}: {plain(str(why))}"
    rollout = plain(f"{payload.get('model_deployment')}: {payload.get('revision')}")
    if event.startswith("approval."):
        where = f"at step {payload['step']}" if payload.get("step") else "at its gates"
        still = "still waits" if event == "approval.escalated" else "waits"
        end = {"roll_back": "it is rolled back", "hold": "it stalls"}[str(payload.get("otherwise") or "hold")]
        until = f" By {payload['until']} {end}." if payload.get("until") else ""
        return f"{rollout} {still} for approval {where}.{until} {plain(payload.get('message') or '')}".strip()
    done = "was rolled back" if event == "model.rolled_back" else "serves all requests"
    return f"{rollout} {done}: {plain(str(payload.get('verdict')))}"


def next_step(event: str, namespace: str, payload: Mapping[str, Any]) -> str:
    """The command a person runs next, with their own rights."""
    name = payload.get("job") or payload.get("model_deployment")
    if event == "report.daily":
        return f"kubectl get la,tjob,mdep -n {namespace}"
    if event.startswith("approval."):
        return f"kubectl learnloop approve {name} -n {namespace}"
    return f"kubectl learnloop {'trace' if event.startswith('training.') else 'why'} {name} -n {namespace}"
