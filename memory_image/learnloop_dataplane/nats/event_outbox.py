"""Events that are written with the change they tell of, and published afterwards: a crash between cannot lose one.

From reading them to their acknowledgement no erasure begins: one that comes later finds the events in the stream.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from learnloop_dataplane.concurrency import loop
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.people import hold_off

if TYPE_CHECKING:  # a process without NATS does not load its client
    from learnloop_dataplane.nats.connection import Bus

BATCH = 200
Event = tuple[str, bytes, str]
"""Subject, payload and message id."""
AlsoTold = Callable[[Any, str, str, str, bytes], Awaitable[None]]
"""Of a connection, namespace, subject, message id and payload."""
_PUT = """
INSERT INTO event_outbox (namespace, message_id, subject, payload, published_at)
VALUES ($1, $2, $3, $4, CASE WHEN $5::bool THEN NULL ELSE now() END) ON CONFLICT DO NOTHING RETURNING 1
"""
_UNPUBLISHED = """
SELECT message_id, subject, payload FROM event_outbox WHERE namespace = $1 AND published_at IS NULL
ORDER BY created_at, message_id LIMIT $2
"""
_PUBLISHED = "UPDATE event_outbox SET published_at = now() WHERE namespace = $1 AND message_id = ANY($2::text[])"


class EventOutbox:
    """Relays `event_outbox`, at least once; the message id lets the stream drop what it already has.

    Args:
        bus: None: without NATS, events are kept as a record and never published.
        also: called in the same transaction with each new event.
    """

    def __init__(self, db: Database, bus: "Bus | None", also: AlsoTold | None = None) -> None:
        self._db = db
        self._bus = bus
        self._also = also

    async def put(self, connection: Any, namespace: str, subject: str, message_id: str, payload: bytes) -> bool:
        """Writes one event within the caller's transaction; False when it was there already.

        Args:
            message_id: starts with the namespace, for all namespaces share the stream.
        """
        later = self._bus is not None
        new = bool(await connection.fetchval(_PUT, namespace, message_id, subject, payload.decode(), later))
        if new and self._also is not None:
            await self._also(connection, namespace, subject, message_id, payload)
        return new

    async def run(self, namespace: str) -> int:
        """Publishes what is pending in one namespace, oldest first, as much as a turn has; returns how many that were.

        Raises:
            Unavailable: what was not marked will be published again; the message id makes that harmless.
        """
        if self._bus is None:
            return 0
        return await publish_pending(self._db, self._bus, namespace, _UNPUBLISHED, _event, (_PUBLISHED, ["message_id"]))


async def publish_pending(
    db: Database,
    bus: "Bus",
    namespace: str,
    pending: str,
    event: Callable[[str, Any], Event],
    published: tuple[str, Sequence[str]],
) -> int:
    """Publishes the rows of a query, oldest first, as much as a turn has; returns how many that were.

    Args:
        pending: the query, of a namespace and a number of rows.
        event: the event of a namespace's row.
        published: the statement that marks rows as published, and the columns that name a row there.

    Raises:
        Unavailable: what was not marked will be published again; the message id makes that harmless.
    """
    done = 0
    mark, keys = published
    while done < loop.TURN:
        async with db.tenant(namespace) as connection:
            await hold_off(connection, namespace)
            rows = await connection.fetch(pending, namespace, BATCH)
            if not rows:
                break
            await bus.publish_all([event(namespace, row) for row in rows])
            await connection.execute(mark, namespace, *([row[key] for row in rows] for key in keys))
        done += len(rows)
    return done


def _event(_: str, row: Any) -> Event:
    return row["subject"], row["payload"].encode(), row["message_id"]
