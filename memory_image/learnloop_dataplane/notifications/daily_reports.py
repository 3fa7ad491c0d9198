"""Daily reports of each namespace, and rollouts that wait for a person.

The id of a report is its namespace and day, so it is sent once.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from learnloop_api import names
from learnloop_api.wire.deployment import AwaitedApproval
from learnloop_dataplane.audit.chain import note_once
from learnloop_dataplane.notifications.webhook_outbox import Notifications
from learnloop_dataplane.postgres.database import Database

EVENT = "report.daily"
LATE = timedelta(hours=12)
"""A report that is due longer than that is not sent any more."""
MOST_EVENTS = 2000
MOST_EACH = 20
PERIOD = timedelta(days=1)
_EVENTS = """
SELECT subject, payload FROM event_outbox
WHERE namespace = $1 AND created_at >= $2 AND created_at < $3
    AND (starts_with(subject, $4) OR starts_with(subject, $5))
ORDER BY created_at DESC LIMIT $6
"""
_WAITING = """
SELECT payload FROM notifications
WHERE namespace = $1 AND event = 'approval.waiting' AND created_at < $2 AND closed_at IS NULL
"""
Payload = Mapping[str, Any]


class Reports:
    """Writes the reports that are due at the webhook's hour."""

    def __init__(self, db: Database, notifications: Notifications) -> None:
        self._db, self._notifications = db, notifications
        self._written: dict[str, datetime] = {}

    async def run(self, namespace: str) -> int:
        """Writes the report that is due; returns how many.

        Raises:
            Unavailable: PostgreSQL is away; a later turn writes what is missing.
        """
        webhook, now, count = self._notifications.webhook, datetime.now(UTC), 0
        if webhook is None or not self._notifications.wants(EVENT):
            return 0
        until = due(now, webhook.report_hour)
        if self._written.get(namespace) != until and now - until <= LATE:
            count = await self._write(namespace, until)
        self._written[namespace] = until
        return count

    async def _write(self, namespace: str, until: datetime) -> int:
        since = until - PERIOD
        kinds = (f"{names.SUBJECT_TRAINING_STATUS}.", f"{names.SUBJECT_MODEL_DEPLOYED}.")
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_EVENTS, namespace, since, until, *kinds, MOST_EVENTS)
            waits = await connection.fetch(_WAITING, namespace, until)
            events = [(row["subject"], orjson.loads(row["payload"])) for row in reversed(rows)]
            waiting = [orjson.loads(row["payload"]) for row in waits]
            content = report(namespace, since, until, events, waiting, cut=len(rows) == MOST_EVENTS)
            if content is None:
                return 0
            identity = f"{namespace}/report/daily/{until:%Y-%m-%d}"
            await self._notifications.write(connection, namespace, EVENT, identity, orjson.dumps(content))
        return 1


def due(now: datetime, hour: int) -> datetime:
    """The newest moment at which a report was due."""
    today = now.astimezone(UTC).replace(hour=hour, minute=0, second=0, microsecond=0)
    return today if today <= now else today - PERIOD


def report(
    namespace: str,
    since: datetime,
    until: datetime,
    events: Sequence[tuple[str, Payload]],
    waiting: Sequence[Payload],
    *,
    cut: bool = False,
) -> dict[str, Any] | None:
    """Runs, deployments, rollbacks and open approvals, and a sentence that counts them; None: nothing happened.

    Args:
        cut: there were more events than these, and the report says so.
    """
    models = [event for subject, event in events if subject.startswith(names.SUBJECT_MODEL_DEPLOYED)]
    ends = [event for subject, event in events if subject.startswith(names.SUBJECT_TRAINING_STATUS)]
    proven = [event for event in ends if event.get("status") == "completed"]
    failed = [event for event in ends if event.get("status") == "failed"]
    back = [event for event in models if event.get("event") == "rolled_back"]
    served = [event for event in models if event.get("event") != "rolled_back"]
    if not (proven or failed or models or waiting):
        return None
    text = (
        f"{namespace}, {since:%Y-%m-%d} to {until:%Y-%m-%d}: {len(proven)} of {len(proven) + len(failed)} runs passed "
        f"their gates, {len(served)} models were deployed, {len(back)} were rolled back, "
        f"{len(waiting)} wait for approval."
    )
    if cut:
        text += f" Only the newest {MOST_EVENTS:,} events of that time are counted."
    parts = {"proven": proven, "failed": failed, "deployed": served, "rolled_back": back, "waiting": waiting}
    return {
        "namespace": namespace,
        "since": since.isoformat(),
        "until": until.isoformat(),
        **{name: list(part[:MOST_EACH]) for name, part in parts.items()},
        "text": text,
    }


WAITING, ESCALATED = "approval.waiting", "approval.escalated"
_SETTLED = """
UPDATE notifications SET closed_at = now()
WHERE namespace = $1 AND event = ANY($2::text[]) AND payload::jsonb ->> 'model_deployment' = $3
    AND closed_at IS NULL AND NOT starts_with(message_id, $4)
"""


class Approvals:
    """Questions of the operator to people."""

    def __init__(self, db: Database, notifications: Notifications) -> None:
        self._db, self._notifications = db, notifications

    async def ask(self, namespace: str, approval: AwaitedApproval) -> None:
        """Writes the message and its escalation, and closes earlier questions of this rollout.

        Raises:
            Unavailable: nothing was written.
        """
        name = approval.model_deployment
        identity = f"{namespace}/awaits/{name}/{approval.revision}/{approval.step}/{approval.since.isoformat()}"
        payload, webhook = approval.model_dump_json().encode(), self._notifications.webhook
        async with self._db.tenant(namespace) as connection:
            await self._settle(connection, namespace, name, identity)
            subject, detail = f"model-deployment/{name}", approval.model_dump(mode="json", exclude={"model_deployment"})
            await note_once(connection, namespace, "rollout.held", subject, detail, identity=identity)
            await self._notifications.write(connection, namespace, WAITING, identity, payload)
            if webhook and webhook.escalation:
                later = f"{identity}/escalated"
                await self._notifications.write(
                    connection, namespace, ESCALATED, later, payload, after=webhook.escalation
                )

    async def settle(self, namespace: str, deployment: str) -> None:
        """Closes all questions of a rollout: messages that were not sent yet are not sent."""
        async with self._db.tenant(namespace) as connection:
            await self._settle(connection, namespace, deployment, "\n")

    async def _settle(self, connection: Any, namespace: str, deployment: str, but: str) -> None:
        await connection.execute(_SETTLED, namespace, [WAITING, ESCALATED], deployment, but)
