"""Rollouts that wait for a person: who is told at once, and who is told when nobody has answered."""

from datetime import UTC, datetime
from typing import Any

from learnloop_api.wire.deployment import AwaitedApproval
from learnloop_dataplane.audit.chain import note, noted
from learnloop_dataplane.errors import ApiError, Invalid
from learnloop_dataplane.notifications.outbox import Notifications
from learnloop_dataplane.notifications.references import BadReference, References
from learnloop_dataplane.postgres.database import Database

WAITING, ESCALATED = "approval.waiting", "approval.escalated"
_SETTLED = """
UPDATE notifications SET given_up_at = CASE WHEN delivered_at IS NULL THEN now() END, problem = 'it waits no more'
WHERE namespace = $1 AND event = ANY($2::text[]) AND payload::jsonb ->> 'model_deployment' = $3
    AND given_up_at IS NULL AND problem IS DISTINCT FROM 'it waits no more' AND NOT starts_with(message_id, $4)
"""

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"


class Approvals:
    """Told by the operator. `references` None: there is no key to sign with, and messages have none."""

    def __init__(self, db: Database, notifications: Notifications, references: References | None) -> None:
        self._db, self._notifications, self._references = db, notifications, references

    async def asked(self, namespace: str, asked: AwaitedApproval) -> None:
        """Writes down who is told now and who later; what was asked before of this rollout is settled.

        Raises:
            Unavailable: nothing was written.
        """
        identity = (
            f"{namespace}/awaits/{asked.model_deployment}/{asked.revision}/{asked.step}/{asked.since.isoformat()}"
        )
        payload = asked.model_dump_json().encode()
        async with self._db.tenant(namespace) as connection:
            await self._settle(connection, namespace, asked.model_deployment, identity)
            await self._held(connection, namespace, asked, identity)
            await self._notifications.tell(connection, namespace, WAITING, identity, payload)
            for seconds, receivers in self._notifications.escalations(namespace):
                later = f"{identity}/after/{seconds}"
                await self._notifications.tell(
                    connection, namespace, ESCALATED, later, payload, to=receivers, after=float(seconds)
                )

    async def _held(self, connection: Any, namespace: str, asked: AwaitedApproval, identity: str) -> None:
        """On record once, whoever tells it again."""
        subject = f"model-deployment/{asked.model_deployment}"
        await connection.execute(_LOCK, f"{namespace}/held/{subject}")
        if await noted(connection, namespace, subject, identity):
            return
        told = asked.model_dump(mode="json", exclude={"model_deployment"}) | {"id": identity}
        await note(connection, namespace, "rollout.held", subject, told)

    async def settled(self, namespace: str, deployment: str) -> None:
        """Nobody is waited for any more: what has not been said is not said."""
        async with self._db.tenant(namespace) as connection:
            await self._settle(connection, namespace, deployment, "\n")

    def about(self, namespace: str, deployment: str, reference: str) -> dict[str, Any]:
        """What a reference is about.

        Raises:
            Invalid: it is not valid, and the sentence says why.
        """
        if self._references is None:
            raise ApiError(409, "no key signs references here: set dataPlane.audit, or approve without one")
        try:
            found = self._references.read(namespace, reference, datetime.now(UTC))
        except BadReference as error:
            raise Invalid(str(error), field="reference") from None
        if found["model_deployment"] != deployment:
            raise Invalid(f"it is about {found['model_deployment']}, not {deployment}", field="reference")
        return found

    async def _settle(self, connection: Any, namespace: str, deployment: str, but: str) -> None:
        await connection.execute(_SETTLED, namespace, [WAITING, ESCALATED], deployment, but)
