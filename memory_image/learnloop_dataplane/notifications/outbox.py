"""The table `notifications`: a message is written with its event, sent until it is delivered, and then kept 30 days.

A process that is killed between the receiver's answer and the mark sends the message again, with the same id.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import orjson

from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.notifications.messages import cloud_event, event_of
from learnloop_dataplane.notifications.webhook import SECONDS, NotDelivered, Webhook
from learnloop_dataplane.postgres.database import Database

if TYPE_CHECKING:
    from learnloop_dataplane.notifications.sending import Sender

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
        self._key_file = key_file
        self._sender: Sender | None = None

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
        """The webhook gets this event."""
        return self.webhook is not None and event in self.webhook.events

    async def run(self, namespace: str) -> int:
        """Sends what is due in one namespace; returns how many messages were delivered.

        Raises:
            Unavailable: PostgreSQL is away; what was sent is sent again, with the same id.
        """
        if self.webhook is None:
            return 0
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_OLD, namespace)
            due = await connection.fetch(_CLAIM, namespace)
        return sum(await asyncio.gather(*(self._deliver(self._opened(self.webhook), namespace, row) for row in due)))

    async def _deliver(self, sender: "Sender", namespace: str, row: Any) -> bool:
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
            self._metrics.notification("failed")
            return False
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_DELIVERED, namespace, row["message_id"])
        self._metrics.notification("delivered")
        return True

    async def close(self) -> None:
        """Closes the connections."""
        if self._sender is not None:
            await self._sender.close()

    def _opened(self, webhook: Webhook) -> "Sender":
        """Made for the first message: without one, no HTTP client is imported."""
        if self._sender is None:
            from learnloop_dataplane.notifications.sending import Sender

            self._sender = Sender(webhook, self._key_file)
        return self._sender
