"""Daily reports of each namespace. The id of a report is its namespace and day, so it is sent once."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from learnloop_api import names
from learnloop_dataplane.notifications.outbox import Notifications
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
