"""Which model serves, as the operator tells it: a record of every change, and an event for each."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from learnloop_api import names
from learnloop_api.wire.deployment import ModelDeployed
from learnloop_dataplane.audit.journal import note
from learnloop_dataplane.nats.event_outbox import EventOutbox
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.row_ids import uuid7

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_HISTORY = """
SELECT payload, created_at, message_id FROM event_outbox
WHERE namespace = $1 AND subject = $2 AND (created_at, message_id) < ($4, $5)
ORDER BY created_at DESC, message_id DESC LIMIT $3
"""
_NEWEST = (datetime(9999, 12, 31, tzinfo=UTC), "")


class Deployments:
    """Told by the operator; published as `agent.rl.model.deployed.v1.<namespace>.<model deployment>`.

    Args:
        arrived: is told a namespace in whose outbox an event waits.
    """

    def __init__(self, db: Database, outbox: EventOutbox, arrived: Callable[[str], None]) -> None:
        self._db = db
        self._outbox = outbox
        self._arrived = arrived

    async def put(self, namespace: str, event: ModelDeployed) -> bool:
        """Keeps a change; False when that revision is what serves already, as far as is known here.

        So it may be told any number of times, and a revision that comes to serve again later is a change anew.

        Raises:
            Unavailable: nothing was written.
        """
        subject = _subject(namespace, event)
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_LOCK, subject)
            rows = await connection.fetch(_HISTORY, namespace, subject, 1, *_NEWEST)
            if rows and ModelDeployed.model_validate_json(rows[0]["payload"]).revision == event.revision:
                return False
            told = {
                "revision": event.revision,
                "previous": event.previous_revision,
                "sha256": event.sha256,
                "verdict": event.verdict,
            }
            await note(connection, namespace, "model.deployed", f"model-deployment/{event.model_deployment}", told)
            identity = f"{namespace}/deployed/{uuid7()}"
            new = await self._outbox.put(connection, namespace, subject, identity, event.model_dump_json().encode())
        if new:
            self._arrived(namespace)
        return new

    async def history(
        self, namespace: str, deployment: str, limit: int, before: tuple[Any, ...] | None = None
    ) -> tuple[list[ModelDeployed], tuple[datetime, str] | None]:
        """The newest changes of one ModelDeployment, newest first, those before a time and message; and the time and
        message of the last one where there may be more."""
        subject = f"{names.SUBJECT_MODEL_DEPLOYED}.{namespace}.{deployment}"
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_HISTORY, namespace, subject, limit, *(before or _NEWEST))
        more = (rows[-1]["created_at"], rows[-1]["message_id"]) if len(rows) == limit else None
        return [ModelDeployed.model_validate_json(row["payload"]) for row in rows], more


def _subject(namespace: str, event: ModelDeployed) -> str:
    return f"{names.SUBJECT_MODEL_DEPLOYED}.{namespace}.{event.model_deployment}"
