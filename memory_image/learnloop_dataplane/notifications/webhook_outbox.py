"""Messages to the webhook: written with their event, signed, posted until they are delivered, and kept 30 days.

A process that is killed between the receiver's answer and the mark sends the message again, with the same id.
"""

import asyncio
import base64
import hmac
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import httpx
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from learnloop_api import names
from learnloop_api.kinds.base import seconds_of
from learnloop_common import key_rotation, untrusted_text
from learnloop_dataplane.errors import ConfigError
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres.database import Database

SECONDS = 10.0
"""For one message, with its answer."""
Event = Literal[
    "training.completed",
    "training.failed",
    "model.deployed",
    "model.rolled_back",
    "approval.waiting",
    "report.daily",
]
EVENTS: tuple[Event, ...] = (
    "training.completed",
    "training.failed",
    "model.deployed",
    "model.rolled_back",
    "approval.waiting",
)


class NotDelivered(Exception):
    """The receiver did not accept the message."""


class Webhook(BaseModel):
    """The receiver and the events that it gets."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
    url: str = Field(max_length=2048, pattern=r"^https?://[^\s@]+$")
    events: list[Event] = Field(default_factory=lambda: list(EVENTS), min_length=1)
    escalate_after: str = Field(default="", max_length=8, pattern=r"^([1-9][0-9]{0,5}[smh])?$", alias="escalateAfter")
    report_hour: int = Field(default=7, ge=0, le=23, alias="reportHour", description="UTC")

    @classmethod
    def parse(cls, setting: str | None) -> Self | None:
        """Reads LEARNLOOP_NOTIFICATIONS.

        Raises:
            ConfigError: names the field and the fix.
        """
        if not setting:
            return None
        try:
            return cls.model_validate_json(setting)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ConfigError(f"LEARNLOOP_NOTIFICATIONS: {where}: {first['msg']}") from None

    @property
    def escalation(self) -> float | None:
        """Seconds without an answer until an approval is sent again."""
        return float(seconds_of(self.escalate_after)) if self.escalate_after else None


MOST_KEY_BYTES = 8192
CODED = "whsec_"
"""Before a key in Base64, by the Standard Webhooks specification."""


class Sender:
    """Posts messages to the webhook, signed with the key in a file; the file is read for each message."""

    def __init__(self, webhook: Webhook, key_file: str) -> None:
        self._webhook, self._key_file = webhook, Path(key_file)
        self._client = httpx.AsyncClient(timeout=SECONDS, trust_env=False, follow_redirects=False)

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, event: Mapping[str, Any]) -> None:
        """Posts one CloudEvent.

        Raises:
            NotDelivered: the receiver does not answer in time, or its status is not 2xx.
        """
        try:
            async with asyncio.timeout(SECONDS):
                with self._key_file.open("rb") as file:
                    key = file.read(MOST_KEY_BYTES).decode().strip()
                body = orjson.dumps(event)
                headers = signed(key, event["id"], int(time.time()), body)
                headers |= {"content-type": "application/cloudevents+json; charset=utf-8", "user-agent": "learnloop"}
                async with self._client.stream("POST", self._webhook.url, content=body, headers=headers) as answer:
                    status = answer.status_code
        except TimeoutError:
            raise NotDelivered(f"no answer after {SECONDS:g} s") from None
        except (OSError, ValueError, httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotDelivered(f"{type(error).__name__}: {error}"[:200]) from error
        if status >= 300:
            raise NotDelivered(f"the receiver answers with {status}")


def signed(secret: str, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Headers of the Standard Webhooks specification: HMAC-SHA256 over id, time and body, by each key of `secret`.

    Raises:
        ValueError: a key is missing or invalid; the message does not contain it.
    """
    content = f"{message_id}.{timestamp}.".encode() + body
    marks = [hmac.digest(_key(line), content, "sha256") for line in key_rotation.KeyLines.parse(secret).values]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(mark).decode()}" for mark in marks),
    }


def _key(line: str) -> bytes:
    if not line.startswith(CODED):
        return line.encode()
    try:
        key = base64.b64decode(line.removeprefix(CODED), validate=True)
    except ValueError:
        key = b""
    if not key:
        raise ValueError(f"the secret's {CODED} is not followed by a key in Base64: make a new one")
    return key


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
        job = untrusted_text.plain(str(payload.get("job")))
        outcome = "is validated" if event == "training.completed" else "failed"
        why = (payload.get("error") or {}).get("message") or payload.get("message") or ""
        return f"{job} {outcome}: {untrusted_text.plain(str(why))}"
    rollout = untrusted_text.plain(f"{payload.get('model_deployment')}: {payload.get('revision')}")
    if event.startswith("approval."):
        where = f"at step {payload['step']}" if payload.get("step") else "at its gates"
        still = "still waits" if event == "approval.escalated" else "waits"
        end = {"roll_back": "it is rolled back", "hold": "it stalls"}[str(payload.get("otherwise") or "hold")]
        until = f" By {payload['until']} {end}." if payload.get("until") else ""
        message = untrusted_text.plain(payload.get("message") or "")
        return f"{rollout} {still} for approval {where}.{until} {message}".strip()
    done = "was rolled back" if event == "model.rolled_back" else "serves all requests"
    return f"{rollout} {done}: {untrusted_text.plain(str(payload.get('verdict')))}"


def next_step(event: str, namespace: str, payload: Mapping[str, Any]) -> str:
    """The command a person runs next, with their own rights."""
    name = payload.get("job") or payload.get("model_deployment")
    if event == "report.daily":
        return f"kubectl get la,tjob,mdep -n {namespace}"
    if event.startswith("approval."):
        return f"kubectl learnloop approve {name} -n {namespace}"
    return f"kubectl learnloop {'trace' if event.startswith('training.') else 'why'} {name} -n {namespace}"


log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 5, 3600
"""Seconds until the next attempt: five, then twice as long each time."""
BATCH = 10
_PUT = """
INSERT INTO notifications (namespace, message_id, event, payload, created_at, next_at)
SELECT $1, $2, $3, $4, at, at FROM (SELECT clock_timestamp() + make_interval(secs => $5) AS at) due
ON CONFLICT DO NOTHING
"""
# A claim lasts longer than an attempt; after that, another process may send the message.
_CLAIM = f"""
UPDATE notifications n SET attempts = n.attempts + 1, next_at = now() + interval '{3 * SECONDS:.0f} seconds'
FROM (
    SELECT message_id FROM notifications
    WHERE namespace = $1 AND delivered_at IS NULL AND closed_at IS NULL AND next_at <= now()
    ORDER BY next_at LIMIT {BATCH} FOR UPDATE SKIP LOCKED
) due
WHERE n.namespace = $1 AND n.message_id = due.message_id
RETURNING n.message_id, n.event, n.payload, n.created_at, n.attempts
"""
_DELIVERED = "UPDATE notifications SET delivered_at = now(), problem = NULL WHERE namespace = $1 AND message_id = $2"
_FAILED = """
UPDATE notifications SET next_at = now() + make_interval(secs => $3), problem = $4,
    closed_at = coalesce(closed_at, CASE WHEN created_at < now() - interval '3 days' THEN now() END)
WHERE namespace = $1 AND message_id = $2
"""
_OLD = """
DELETE FROM notifications WHERE namespace = $1 AND coalesce(delivered_at, closed_at) < now() - interval '30 days'
"""


class Notifications:
    """Writes messages and sends them."""

    def __init__(self, db: Database, webhook: Webhook | None, key_file: str, metrics: Metrics) -> None:
        self._db, self.webhook, self._metrics = db, webhook, metrics
        self._sender = Sender(webhook, key_file) if webhook is not None else None

    async def put(self, connection: Any, namespace: str, subject: str, message_id: str, payload: bytes) -> None:
        """Writes the message of an event, within the transaction that writes the event."""
        if self.webhook is not None and (event := event_of(subject, orjson.loads(payload))):
            await self.write(connection, namespace, event, message_id, payload)

    async def write(
        self, connection: Any, namespace: str, event: str, message_id: str, payload: bytes, *, after: float = 0.0
    ) -> None:
        """Writes one message in the caller's transaction, to be sent in `after` seconds; an id is written once."""
        if self.wants("approval.waiting" if event == "approval.escalated" else event):
            await connection.execute(_PUT, namespace, message_id, event, payload.decode(), after)

    def wants(self, event: str) -> bool:
        return self.webhook is not None and event in self.webhook.events

    async def run(self, namespace: str) -> int:
        """Sends what is due in one namespace; returns how many messages were delivered.

        Raises:
            Unavailable: PostgreSQL is away; what was sent is sent again, with the same id.
        """
        if self._sender is None:
            return 0
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_OLD, namespace)
            due = await connection.fetch(_CLAIM, namespace)
        return sum(await asyncio.gather(*(self._deliver(self._sender, namespace, row) for row in due)))

    async def _deliver(self, sender: Sender, namespace: str, row: Any) -> bool:
        try:
            payload = orjson.loads(row["payload"])
            at = row["created_at"].isoformat()
            await sender.send(cloud_event(row["message_id"], namespace, row["event"], at, payload))
        except Exception as error:  # one message that cannot be sent must not stop the others
            why = str(error) if isinstance(error, NotDelivered) else f"{type(error).__name__}: {error}"[:200]
            log.warning("notification %s: %s", row["message_id"], why)
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(row["attempts"] - 1, 20))
            async with self._db.tenant(namespace) as connection:
                await connection.execute(_FAILED, namespace, row["message_id"], pause, why)
            self._metrics.count("notifications", "failed")
            return False
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_DELIVERED, namespace, row["message_id"])
        self._metrics.count("notifications", "delivered")
        return True

    async def close(self) -> None:
        if self._sender is not None:
            await self._sender.close()
