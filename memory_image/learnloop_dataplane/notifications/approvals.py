"""Rollouts that wait for a person: the message, its escalation, and a signed reference to what was asked.

A reference grants nothing: the decision is made with the rights of the person who makes it. It only prevents a decision
about something else: another revision, another step, or a question of last month.
"""

import base64
import binascii
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from learnloop_api.wire.deployment import AwaitedApproval
from learnloop_dataplane.audit.chain import note, noted
from learnloop_dataplane.audit.signing import Signer, verifies
from learnloop_dataplane.errors import ApiError, Invalid
from learnloop_dataplane.notifications.outbox import Notifications
from learnloop_dataplane.postgres.database import Database

WAITING, ESCALATED = "approval.waiting", "approval.escalated"
PURPOSE = "learnloop approval reference v1"
"""Part of each document: a signature of the same key over anything else cannot be used as a reference."""
VALID_FOR = timedelta(days=7)
"""Of an approval without a deadline."""
_SETTLED = """
UPDATE notifications SET closed_at = now()
WHERE namespace = $1 AND event = ANY($2::text[]) AND payload::jsonb ->> 'model_deployment' = $3
    AND closed_at IS NULL AND NOT starts_with(message_id, $4)
"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"


class References:
    """Signs references with the key of the audit chain, and reads them again."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer

    def made(self, namespace: str, asked: AwaitedApproval) -> str:
        """The reference to one question; the same for each message about it."""
        document = {
            "purpose": PURPOSE,
            "namespace": namespace,
            "model_deployment": asked.model_deployment,
            "revision": asked.revision,
            "step": asked.step,
            "since": asked.since.astimezone(UTC).isoformat(),
            "expires": (asked.until or asked.since + VALID_FOR).astimezone(UTC).isoformat(),
        }
        return f"{_text(orjson.dumps(document))}.{_text(self._signer.sign(document)[1])}"

    def read(self, namespace: str, reference: str, now: datetime) -> dict[str, Any]:
        """Its model_deployment, revision, step, since and expires.

        Raises:
            Invalid: forged, of another namespace, or expired.
        """
        body, _, mark = reference.partition(".")
        try:
            document, signature = orjson.loads(_bytes(body)), _bytes(mark)
        except (ValueError, binascii.Error):
            raise Invalid("invalid reference: copy all of it, with its dot", field="reference") from None
        purpose = document.get("purpose") if isinstance(document, dict) else None
        if purpose != PURPOSE or not any(verifies(key, document, signature) for key in self._signer.public_keys):
            raise Invalid("its signature is invalid: it was changed, or the key was replaced", field="reference")
        if document["namespace"] != namespace:
            raise Invalid(f"it belongs to another namespace than {namespace}: add -n", field="reference")
        if datetime.fromisoformat(document["expires"]) < now:
            raise Invalid(f"it expired at {document['expires']}: look at the rollout as it is now", field="reference")
        return {name: document[name] for name in ("model_deployment", "revision", "step", "since", "expires")}


class Approvals:
    """Written by the operator. Without a key, `references` is None and messages have no reference."""

    def __init__(self, db: Database, notifications: Notifications, references: References | None) -> None:
        self._db, self._notifications, self._references = db, notifications, references

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

    def about(self, namespace: str, deployment: str, reference: str) -> dict[str, Any]:
        """The question that a reference belongs to.

        Raises:
            Invalid: the reference is invalid, or belongs to another deployment.
        """
        if self._references is None:
            raise ApiError(409, "no key signs references here: set dataPlane.audit, or approve without one")
        document = self._references.read(namespace, reference, datetime.now(UTC))
        if document["model_deployment"] != deployment:
            raise Invalid(f"it is about {document['model_deployment']}, not {deployment}", field="reference")
        return document

    async def _settle(self, connection: Any, namespace: str, deployment: str, but: str) -> None:
        await connection.execute(_SETTLED, namespace, [WAITING, ESCALATED], deployment, but)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
