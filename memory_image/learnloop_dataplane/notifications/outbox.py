"""The table `notifications`: written with the event it tells of, gone when it was taken or is too old.

A message is at least once on its way, and its id tells a receiver that it has it already. So a process that is killed
between the receiver's answer and the mark loses nothing; and nothing is written twice, for the key is the event's id
and the receiver's name.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from learnloop_api.wire.deployment import AwaitedApproval
from learnloop_dataplane.concurrency.loop import cancel
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.notifications.messages import event_of
from learnloop_dataplane.notifications.receivers import NotDelivered, Receivers
from learnloop_dataplane.notifications.references import References
from learnloop_dataplane.postgres.database import Database

if TYPE_CHECKING:
    from learnloop_dataplane.notifications.sending import Sender

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 5, 3600
"""Seconds until a message is tried again: five, then twice as long each time."""
GIVE_UP = "3 days"
BATCH = 10
"""Messages of a namespace for one receiver at once."""
PATIENCE = 1.0
"""Seconds that a pass waits for answers. Who takes longer holds up nobody else, and is told nothing more meanwhile."""
MOST_SAID = 200
TRY_SECONDS, CLAIM_SECONDS = 20, 30
_PUT = """
INSERT INTO notifications (namespace, message_id, receiver, event, payload, created_at, next_at)
SELECT $1, $2, unnest($3::text[]), $4, $5, at, at
FROM (SELECT clock_timestamp() + make_interval(secs => $6) AS at) due ON CONFLICT DO NOTHING
"""
"""One that is sent later is of that later time: from then on it is tried as long as any other."""
# Whoever claims a message has this long for it, longer than a try lasts; then another process may take it. A receiver
# that is behind takes no other one's place.
_DUE = "namespace = $1 AND delivered_at IS NULL AND given_up_at IS NULL AND next_at <= now()"
_CLAIM = f"""
WITH due AS MATERIALIZED (
    SELECT claimed.* FROM (SELECT DISTINCT receiver FROM notifications WHERE {_DUE} AND receiver <> ALL($2::text[])) of
    CROSS JOIN LATERAL (
        SELECT message_id, receiver FROM notifications WHERE {_DUE} AND receiver = of.receiver
        ORDER BY next_at LIMIT {BATCH} FOR UPDATE SKIP LOCKED
    ) claimed
)
UPDATE notifications n SET attempts = n.attempts + 1, next_at = now() + interval '{CLAIM_SECONDS} seconds'
FROM due WHERE n.namespace = $1 AND n.message_id = due.message_id AND n.receiver = due.receiver
RETURNING n.message_id, n.receiver, n.event, n.payload, n.created_at, n.attempts
"""
_TAKEN = """
UPDATE notifications SET delivered_at = now(), problem = NULL
WHERE namespace = $1 AND message_id = $2 AND receiver = $3
"""
# What was settled while it was on its way stays so: nobody is asked after somebody has answered.
_NOT_TAKEN = f"""
UPDATE notifications SET next_at = now() + make_interval(secs => $4),
    problem = CASE WHEN given_up_at IS NULL THEN $5 ELSE problem END,
    given_up_at = coalesce(given_up_at, CASE WHEN $6 OR created_at < now() - interval '{GIVE_UP}' THEN now() END)
WHERE namespace = $1 AND message_id = $2 AND receiver = $3
"""
_OLD = """
DELETE FROM notifications WHERE namespace = $1 AND coalesce(delivered_at, given_up_at) < now() - interval '30 days'
"""


class Notifications:
    """Tells the receivers of all namespaces."""

    def __init__(
        self, db: Database, receivers: Receivers, metrics: Metrics, references: References | None = None
    ) -> None:
        self._db, self._receivers, self._metrics, self._references = db, receivers, metrics, references
        self._sender: Sender | None = None
        self._under_way: dict[asyncio.Task[bool], str] = {}
        """What has not ended, and whom it tells."""

    async def put(self, connection: Any, namespace: str, subject: str, message_id: str, payload: bytes) -> None:
        """Writes what receivers are told of an event, within the transaction that writes the event."""
        if not self._receivers.all:
            return
        event = event_of(subject, orjson.loads(payload))
        if event:
            await self.tell(connection, namespace, event, message_id, payload)

    async def tell(
        self,
        connection: Any,
        namespace: str,
        event: str,
        message_id: str,
        payload: bytes,
        *,
        to: Sequence[str] | None = None,
        after: float = 0.0,
    ) -> None:
        """Writes one message for each receiver in the caller's transaction; one that is there stays as it is.

        Args:
            to: names of receivers; None: all that want this event.
            after: seconds from now until it is sent.
        """
        told = self._receivers.of(namespace, event) if to is None else list(to)
        if told:
            await connection.execute(_PUT, namespace, message_id, told, event, payload.decode(), after)

    def wanted(self, namespace: str, event: str) -> bool:
        """Somebody wants to be told of this."""
        return bool(self._receivers.of(namespace, event))

    def escalations(self, namespace: str) -> list[tuple[int, list[str]]]:
        """Seconds without an answer, and who is told then."""
        return self._receivers.escalations(namespace)

    async def run(self, namespace: str) -> int:
        """Sends what is due in one namespace; returns how many messages were taken.

        Raises:
            Unavailable: PostgreSQL is away; what was sent is sent again, with the same id.
        """
        if not self._receivers.all:
            return 0
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_OLD, namespace)
            due = await connection.fetch(_CLAIM, namespace, sorted(set(self._under_way.values())))
        tasks = [asyncio.create_task(self._deliver(namespace, row), name=row["receiver"]) for row in due]
        if not tasks:
            return 0
        for task in tasks:
            self._under_way[task] = task.get_name()
            task.add_done_callback(self._ended)
        ended, _ = await asyncio.wait(tasks, timeout=PATIENCE)
        return sum([await task for task in ended])

    def _ended(self, task: asyncio.Task[bool]) -> None:
        """Where the end is not written down, the message is claimed for a while, and then tried again."""
        self._under_way.pop(task, None)
        if not task.cancelled() and (error := task.exception()):
            log.info("what %s was told is not written down: %s", task.get_name(), error)

    async def _deliver(self, namespace: str, row: Any) -> bool:
        receiver, key = self._receivers.all.get(row["receiver"]), (namespace, row["message_id"], row["receiver"])
        payload = orjson.loads(row["payload"])
        notice = {
            "message_id": row["message_id"],
            "namespace": namespace,
            "event": row["event"],
            "at": row["created_at"].isoformat(),
            "name": payload.get("job") or payload.get("model_deployment") or "",
            "payload": payload,
        }
        try:
            if row["event"].startswith("approval.") and self._references is not None:
                asked = AwaitedApproval.model_validate(payload)
                notice["payload"] = {**payload, "reference": self._references.made(namespace, asked)}
            if receiver is None:
                raise NotDelivered("no receiver has this name any more", final=True)
            async with asyncio.timeout(TRY_SECONDS):
                await self._speaker().send(receiver, notice)
        except Exception as error:  # whatever is wrong with one message, the others are told
            final, why = getattr(error, "final", False), str(error) or f"no end after {TRY_SECONDS} s"
            if not isinstance(error, NotDelivered | TimeoutError):
                why = f"{type(error).__name__}: {why}"[:MOST_SAID]
                log.warning("%s/%s for %s: %s", namespace, row["message_id"], row["receiver"], why)
            pause = FIRST_PAUSE * 2 ** min(row["attempts"] - 1, 20)
            pause = min(LONGEST_PAUSE, max(pause, getattr(error, "after", 0.0)))
            async with self._db.tenant(namespace) as connection:
                await connection.execute(_NOT_TAKEN, *key, float(pause), why, final)
            self._metrics.notification(row["receiver"], "given_up" if final else "failed")
            return False
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_TAKEN, *key)
        self._metrics.notification(row["receiver"], "delivered")
        return True

    async def close(self) -> None:
        """Ends its connections. What was under way is told by whoever runs next, with the same id."""
        await cancel(list(self._under_way))
        if self._sender is not None:
            await self._sender.close()

    def _speaker(self) -> "Sender":
        """Made for the first message: most installations tell nobody, and need no HTTP client for it."""
        if self._sender is None:
            from learnloop_dataplane.notifications.sending import Sender

            self._sender = Sender(self._receivers)
        return self._sender
