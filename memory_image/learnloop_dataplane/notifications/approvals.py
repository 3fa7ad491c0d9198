"""Rollouts that wait for a person: the message and its escalation."""

from typing import Any

from learnloop_api.wire.deployment import AwaitedApproval
from learnloop_dataplane.audit.chain import note, noted
from learnloop_dataplane.notifications.outbox import Notifications
from learnloop_dataplane.postgres.database import Database

WAITING, ESCALATED = "approval.waiting", "approval.escalated"
_SETTLED = """
UPDATE notifications SET closed_at = now()
WHERE namespace = $1 AND event = ANY($2::text[]) AND payload::jsonb ->> 'model_deployment' = $3
    AND closed_at IS NULL AND NOT starts_with(message_id, $4)
"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"


class Approvals:
    """Questions of the operator to people."""

    def __init__(self, db: Database, notifications: Notifications) -> None:
        self._db, self._notifications = db, notifications

    async def ask(self, namespace: str, asked: AwaitedApproval) -> None:
        """Writes the message and its escalation, and closes earlier questions of this rollout.

        Raises:
            Unavailable: nothing was written.
        """
        name = asked.model_deployment
        identity = f"{namespace}/awaits/{name}/{asked.revision}/{asked.step}/{asked.since.isoformat()}"
        payload, webhook = asked.model_dump_json().encode(), self._notifications.webhook
        async with self._db.tenant(namespace) as connection:
            await self._settle(connection, namespace, name, identity)
            await self._record(connection, namespace, asked, identity)
            await self._notifications.write(connection, namespace, WAITING, identity, payload)
            if webhook and webhook.escalation:
                later = f"{identity}/escalated"
                await self._notifications.write(
                    connection, namespace, ESCALATED, later, payload, after=webhook.escalation
                )

    async def _record(self, connection: Any, namespace: str, asked: AwaitedApproval, identity: str) -> None:
        """Writes one audit record per question."""
        subject = f"model-deployment/{asked.model_deployment}"
        await connection.execute(_LOCK, f"{namespace}/held/{subject}")
        if not await noted(connection, namespace, subject, identity):
            detail = asked.model_dump(mode="json", exclude={"model_deployment"}) | {"id": identity}
            await note(connection, namespace, "rollout.held", subject, detail)

    async def settle(self, namespace: str, deployment: str) -> None:
        """Closes all questions of a rollout: messages that were not sent yet are not sent."""
        async with self._db.tenant(namespace) as connection:
            await self._settle(connection, namespace, deployment, "\n")

    async def _settle(self, connection: Any, namespace: str, deployment: str, but: str) -> None:
        await connection.execute(_SETTLED, namespace, [WAITING, ESCALATED], deployment, but)
