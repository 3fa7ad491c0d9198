"""Data keys: one for each namespace, for each agent in it, and for each person whom an agent served.

They lie in the database, wrapped. Nothing keeps one in memory: reading and unwrapping costs less than what it opens,
and a key that an erasure has destroyed opens nothing from that moment on, in any process.
"""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from learnloop_common.encryption.envelope import KEY_BYTES, DataKey
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.row_ids import uuid7
from learnloop_dataplane.wrapping_keys import WrappingKeys

BATCH = 500
"""Keys wrapped anew in one transaction."""
# In one order, so that two writers of the same keys wait for one another and never in a circle.
_MAKE = """
INSERT INTO data_keys (namespace, agent_id, user_hash, key_id, wrapping_key, wrapped)
SELECT $1, k.agent_id, k.user_hash, k.key_id, $2, k.wrapped
FROM unnest($3::text[], $4::text[], $5::uuid[], $6::bytea[]) AS k(agent_id, user_hash, key_id, wrapped)
ORDER BY k.agent_id, k.user_hash ON CONFLICT DO NOTHING
"""
# Held, so that no erasure destroys a key between this and what is written by it.
_OF = """
SELECT d.agent_id, d.user_hash, d.key_id, d.wrapping_key, d.wrapped FROM data_keys d
JOIN unnest($2::text[], $3::text[]) AS k(agent_id, user_hash) USING (agent_id, user_hash)
WHERE d.namespace = $1 ORDER BY d.agent_id, d.user_hash FOR KEY SHARE OF d
"""
_BY_ID = "SELECT key_id, wrapping_key, wrapped FROM data_keys WHERE namespace = $1 AND key_id = ANY($2::uuid[])"
_OLD = f"""
SELECT key_id, wrapping_key, wrapped FROM data_keys WHERE namespace = $1 AND wrapping_key <> $2
ORDER BY key_id LIMIT {BATCH} FOR NO KEY UPDATE SKIP LOCKED
"""
_REWRAP = """
UPDATE data_keys d SET wrapping_key = $2, wrapped = k.wrapped
FROM unnest($3::uuid[], $4::bytea[]) AS k(key_id, wrapped) WHERE d.namespace = $1 AND d.key_id = k.key_id
"""


class Owner(NamedTuple):
    """Whose a key is: an agent's, and of one person of those it serves; without both, the namespace's."""

    agent: str = ""
    user: str = ""


NAMESPACE = Owner()


class DataKeys:
    """The keys of all namespaces."""

    def __init__(self, db: Database, wrapping: WrappingKeys) -> None:
        self._db, self._wrapping = db, wrapping

    async def of_namespace(self, namespace: str) -> DataKey:
        """For what is the namespace's and of no single agent or person.

        Raises:
            Unavailable: PostgreSQL does not answer, or a wrapping key is missing.
        """
        async with self._db.tenant(namespace) as connection:
            return (await self.of(connection, namespace, [NAMESPACE]))[NAMESPACE]

    async def of(self, connection: Any, namespace: str, owners: Sequence[Owner]) -> dict[Owner, DataKey]:
        """The keys to seal by, made where there are none. Nobody destroys them before the transaction ends.

        Raises:
            KeyMissing: of a wrapping key.
        """
        wanted = sorted(set(owners))
        columns = [owner.agent for owner in wanted], [owner.user for owner in wanted]
        rows = await connection.fetch(_OF, namespace, *columns)
        if len(rows) < len(wanted):
            known = {Owner(row["agent_id"], row["user_hash"]) for row in rows}
            await self._make(connection, namespace, [owner for owner in wanted if owner not in known])
            rows = await connection.fetch(_OF, namespace, *columns)
        return {Owner(row["agent_id"], row["user_hash"]): self._key(namespace, row) for row in rows}

    async def by_id(self, connection: Any, namespace: str, key_ids: Sequence[UUID]) -> dict[UUID, DataKey]:
        """The keys to open by; one that was destroyed is missing.

        Raises:
            KeyMissing: of a wrapping key.
        """
        rows = await connection.fetch(_BY_ID, namespace, list(set(key_ids)))
        return {row["key_id"]: self._key(namespace, row) for row in rows}

    async def rewrap(self, namespace: str) -> int:
        """Wraps a batch anew that an older key has wrapped; returns how many.

        Raises:
            KeyMissing: the line of the older key went too early.
        """
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_OLD, namespace, self._wrapping.newest)
            keys = [self._key(namespace, row) for row in rows]
            if keys:
                wrapped = [self._wrapping.wrap(key.secret, _context(namespace, key.key_id)) for key in keys]
                ids = [key.key_id for key in keys]
                await connection.execute(_REWRAP, namespace, self._wrapping.newest, ids, wrapped)
        return len(keys)

    async def _make(self, connection: Any, namespace: str, owners: Sequence[Owner]) -> None:
        made = [DataKey(uuid7(), os.urandom(KEY_BYTES)) for _ in owners]
        wrapped = [self._wrapping.wrap(key.secret, _context(namespace, key.key_id)) for key in made]
        named = [owner.agent for owner in owners], [owner.user for owner in owners]
        await connection.execute(_MAKE, namespace, self._wrapping.newest, *named, [key.key_id for key in made], wrapped)

    def _key(self, namespace: str, row: Any) -> DataKey:
        key_id = row["key_id"]
        secret = self._wrapping.unwrap(row["wrapped"], row["wrapping_key"], _context(namespace, key_id))
        return DataKey(key_id, secret)


def _context(namespace: str, key_id: UUID) -> str:
    """A wrapped key that is copied to another namespace does not unwrap there."""
    return f"{namespace}/{key_id}"
