"""Events that are written with the change they tell of, and published afterwards: a crash between cannot lose one.

From reading them to their acknowledgement no erasure begins: one that comes later finds the events in the stream.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from learnloop_dataplane.concurrency import namespace_rounds
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.people import hold_off

if TYPE_CHECKING:  # a process without NATS does not load its client
    from learnloop_dataplane.nats.connection import Bus

BATCH = 200
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
        bus: None where there is no NATS: events are kept as a record and never published.
        also: writes down, in the same transaction, who else is to be told of a new event.
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
        done = 0
        while done < namespace_rounds.TURN:
            async with self._db.tenant(namespace) as connection:
                await hold_off(connection, namespace)
                rows = await connection.fetch(_UNPUBLISHED, namespace, BATCH)
                if not rows:
                    return done
                await self._bus.publish_all(
                    [(row["subject"], row["payload"].encode(), row["message_id"]) for row in rows]
                )
                await connection.execute(_PUBLISHED, namespace, [row["message_id"] for row in rows])
            done += len(rows)
        return done
