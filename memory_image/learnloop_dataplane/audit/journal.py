"""How the rest of the data plane leaves a record: in the transaction of the change, or not at all."""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from hashlib import sha256
from typing import Any
from uuid import UUID

import orjson

from learnloop_dataplane.audit.chain_record import Detail

SYSTEM = "system:learnloop"
# Set once for each request, where the caller is known (api.common); background work never sets it. Passing it through
# every function instead would put a parameter into thirty signatures that do nothing with it.
actor: ContextVar[str] = ContextVar("actor", default=SYSTEM)

_NOTE = """
INSERT INTO audit_pending (namespace, actor, action, subject, outcome, detail) VALUES ($1, $2, $3, $4, $5, $6)
"""
_NOTES = """
INSERT INTO audit_pending (namespace, actor, action, subject, detail)
SELECT $1, $2, 'memory.stored', * FROM unnest($3::text[], $4::jsonb[])
"""

# What the operator tells, a new leader tells again within an hour.
_NOTED = """
SELECT 1 FROM audit_pending WHERE namespace = $1 AND subject = $2 AND detail ->> 'id' = $3
UNION ALL
SELECT 1 FROM (SELECT subject, detail FROM audit_log WHERE namespace = $1 ORDER BY seq DESC LIMIT 20000) newest
WHERE subject = $2 AND detail ->> 'id' = $3 LIMIT 1
"""


async def note(
    connection: Any, namespace: str, action: str, subject: str, detail: Detail | None = None, *, outcome: str = "done"
) -> None:
    """Leaves one record within the caller's transaction; the sealer gives it its place in the chain.

    Args:
        detail: no floating point; see `record.Entry`.
    """
    encoded = orjson.dumps(detail or {}).decode()
    await connection.execute(_NOTE, namespace, actor.get(), action, subject[:512], outcome, encoded)


async def noted(connection: Any, namespace: str, subject: str, identity: str) -> bool:
    """Is a record about this subject whose detail has this `id` among the newest 20,000 of the namespace?"""
    return bool(await connection.fetchval(_NOTED, namespace, subject, identity))


def digest_of(ids: Sequence[UUID]) -> str:
    """SHA-256 over ids, 16 bytes each, in their order: names thousands of memories in one line."""
    return sha256(b"".join(identity.bytes for identity in ids)).hexdigest()


async def note_memories(connection: Any, namespace: str, action: str, agent: str, ids: Sequence[UUID]) -> None:
    """One record about any number of memories of one agent: how many, the first, the last, and all by digest."""
    if ids:
        await note(connection, namespace, action, f"agent/{agent}", _named(ids))


async def note_stored(connection: Any, namespace: str, stored: Mapping[str, Sequence[UUID]]) -> None:
    """The same of memories that were stored, of each of these agents; of a single one its id."""
    if stored:
        details = [_named(ids) if len(ids) > 1 else {"id": str(ids[0])} for ids in stored.values()]
        subjects, encoded = (
            [f"agent/{agent}" for agent in stored],
            [orjson.dumps(detail).decode() for detail in details],
        )
        await connection.execute(_NOTES, namespace, actor.get(), subjects, encoded)


def _named(ids: Sequence[UUID]) -> Detail:
    return {"count": len(ids), "first": str(ids[0]), "last": str(ids[-1]), "ids_sha256": digest_of(ids)}
