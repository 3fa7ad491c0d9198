"""Subjects, and events that are written with the change they tell of, and published afterwards.

A crash between cannot lose an event. From reading it to its acknowledgement no erasure begins: one that comes later
finds the event in the stream. Subjects carry the namespace: rights are given by subject, so the token is to be believed
and the body is not.
"""

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from learnloop_dataplane.concurrency import background_loop
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy import hold_off

BATCH = 200
Event = tuple[str, bytes, str]
"""Subject, payload and message id."""
EventSink = Callable[[Any, str, str, str, bytes], Awaitable[None]]
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

    def __init__(self, db: Database, bus: Bus | None, also: EventSink | None = None) -> None:
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
    bus: Bus,
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
    while done < background_loop.TURN:
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


UNKNOWN = "-"
MAX_FIELD = 60
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


# subject: not <subject>.<namespace>.<name>; json: not JSON; schema: not what the event's schema says; agent: body and
# subject name different agents; storage: PostgreSQL refuses the values.
Code = Literal["subject", "json", "schema", "agent", "storage"]


class RefusedMessage(Exception):
    """A message that can never be stored, and why: a code to select by and a sentence to read."""

    def __init__(self, namespace: str, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.namespace = namespace
        self.code = code
        self.reason = reason[:1024]


def valid_namespace(namespace: str) -> bool:
    """Could a Kubernetes namespace be called this?"""
    return _NAMESPACE.fullmatch(namespace) is not None


def split_subject(subject: str, prefix: str) -> tuple[str, str]:
    """`<prefix>.<namespace>.<name>` → (namespace, name); a name may contain dots, a namespace may not.

    Raises:
        RefusedMessage: the subject does not look like that.
    """
    namespace, _, name = subject.removeprefix(prefix).removeprefix(".").partition(".")
    if not subject.startswith(prefix) or not valid_namespace(namespace) or not _NAME.fullmatch(name):
        raise RefusedMessage(
            namespace if valid_namespace(namespace) else UNKNOWN,
            "subject",
            f"subject {subject!r} is not {prefix}.<namespace>.<name>; publish there",
        )
    return namespace, name


def tenants_id(namespace: str, subject: str, identity: str) -> str:
    """The message id of what a tenant sends, by NATS or by HTTP.

    A stream takes one id once. No tenant can choose an id that the data plane uses, or another tenant: those of tenants
    begin with `tenant/` and the namespace, and end in a hash.
    """
    digest = hashlib.sha256(f"{subject} {identity}".encode(errors="replace")).hexdigest()  # no subject has a space
    return f"tenant/{namespace}/{digest}"


_FIXES = {
    "missing": "add it",
    "extra_forbidden": "remove it: the schema has no such field",
    "json_invalid": "send one JSON object (RFC 8259)",
}


def invalid(namespace: str, subject: str, error: ValidationError) -> RefusedMessage:
    """The refusal of a body: the first faulty field, without its value, which may be private.

    Args:
        subject: the event's, without namespace and name; its schema is served under this name.
    """
    errors = error.errors(include_url=False, include_input=False, include_context=False)
    first = errors[0]
    # pydantic puts the types that it tried of a field among the fields, such as list[float].
    path = [str(part) for part in first["loc"] if isinstance(part, int) or part.isidentifier()]
    field = ".".join(part[:MAX_FIELD] for part in path) or "body"
    fix = _FIXES.get(first["type"], "correct it")
    more = f" ({len(errors) - 1} more after this one)" if len(errors) > 1 else ""
    message = f"{field}: {first['msg'].removeprefix('Value error, ')}; {fix} and publish it under a new Nats-Msg-Id"
    code: Code = "json" if first["type"] == "json_invalid" else "schema"
    return RefusedMessage(namespace, code, f"{message}; schema: /api/v1/schemas/{subject}{more}")
