"""Seals episodes' steps: one data key for each namespace, wrapped by the configured keys."""

import asyncio
import base64
import binascii
import hmac
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from learnloop_common.encryption import KEY_BYTES, DataKey, Unreadable, key_id_of, seal, unseal
from learnloop_dataplane.config_values import WrappingKeys
from learnloop_dataplane.errors import Damaged, KeyMissing
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.row_ids import uuid7

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


MOST_BYTES = 256 * 2**20
"""Of what one envelope may become when it is opened; far above what intake takes."""
_LENGTH = struct.Struct(">Q")


class StepLog(NamedTuple):
    """Steps of one episode and what was seen after them, as JSON; None: there is none, or it is not asked for."""

    trajectory_id: str
    steps: str | None
    last_observation: str | None = None


class StepCipher:
    """Seals what is written and opens what is read. Without keys it passes both on as they are."""

    def __init__(self, keys: DataKeys | None) -> None:
        self._keys = keys

    async def seal(
        self, connection: Any, namespace: str, logs: Sequence[StepLog], owners: Sequence[Owner]
    ) -> Sequence[StepLog]:
        """As they are stored. An erasure that destroys a key waits for the caller's transaction, or comes before it.

        Raises:
            KeyMissing: of a wrapping key.
        """
        if self._keys is None:
            return logs
        found = await self._keys.of(connection, namespace, [NAMESPACE, *owners])
        work = [(namespace, log, found[owner], found[NAMESPACE]) for log, owner in zip(logs, owners, strict=True)]
        return await asyncio.to_thread(lambda: [_sealed(*each) for each in work])

    async def open(self, connection: Any, namespace: str, logs: Sequence[StepLog]) -> Sequence[StepLog]:
        """As they were before they were sealed. Steps whose key was destroyed are None from then on.

        Raises:
            KeyMissing: this process was given no keys, or lacks one.
            Damaged: a column was changed.
        """
        envelopes = {index: _envelope(log) for index, log in enumerate(logs) if is_sealed(log.steps)}
        if not envelopes:
            return logs
        if self._keys is None:
            raise KeyMissing("episodes are sealed and LEARNLOOP_ENCRYPTION_KEYS is not set; give the keys back")
        ids = {index: _key_id(logs[index], envelope) for index, envelope in envelopes.items()}
        keys = await self._keys.by_id(connection, namespace, list(ids.values()))
        return await asyncio.to_thread(_opened, namespace, logs, envelopes, ids, keys)

    async def open_rows(
        self, db: Database, namespace: str, rows: Sequence[Mapping[str, Any]], column: str = "log"
    ) -> Sequence[Mapping[str, Any]]:
        """The same rows, with what lies in `column`, and in `last_observation` where they have one, opened. They name
        their `trajectory_id`. For callers that hold no connection.

        Raises:
            Unavailable: PostgreSQL does not answer; and as `open`.
        """
        if not any(is_sealed(row[column]) for row in rows):
            return rows
        logs = [StepLog(row["trajectory_id"], row[column], row.get("last_observation")) for row in rows]
        async with db.tenant(namespace) as connection:
            opened = await self.open(connection, namespace, logs)
        return [_with(row, column, log) for row, log in zip(rows, opened, strict=True)]


PLAIN = StepCipher(None)
"""Seals nothing."""


def is_sealed(steps: str | None) -> bool:
    """Steps in the open are an array."""
    return steps is not None and steps.startswith("{")


def _with(row: Mapping[str, Any], column: str, log: StepLog) -> Mapping[str, Any]:
    last = {"last_observation": log.last_observation} if "last_observation" in row else {}
    return {**row, column: log.steps, **last}


def _step_context(namespace: str, trajectory_id: str) -> str:
    return f"{namespace}/steps/{trajectory_id}"


def _sealed(namespace: str, log: StepLog, key: DataKey, own: DataKey) -> StepLog:
    if log.steps is None:
        return log
    steps, last = log.steps.encode(), (log.last_observation or "").encode()
    payload = zlib.compress(_LENGTH.pack(len(steps)) + steps + last, level=1)
    envelope = seal(payload, key, _step_context(namespace, log.trajectory_id))
    fingerprint = hmac.digest(own.secret, b"fingerprint of steps\0" + steps, "sha256")[:16]
    stored = {"sealed": base64.b64encode(envelope).decode(), "fingerprint": fingerprint.hex()}
    return StepLog(log.trajectory_id, orjson.dumps(stored).decode(), None)


def _opened(
    namespace: str,
    logs: Sequence[StepLog],
    envelopes: Mapping[int, bytes],
    ids: Mapping[int, UUID],
    keys: Mapping[UUID, DataKey],
) -> list[StepLog]:
    opened = []
    for index, log in enumerate(logs):
        if index not in envelopes:
            opened.append(log)
        elif (key := keys.get(ids[index])) is None:
            opened.append(StepLog(log.trajectory_id, None))
        else:
            opened.append(_plain(log.trajectory_id, namespace, envelopes[index], key))
    return opened


def _plain(trajectory_id: str, namespace: str, envelope: bytes, key: DataKey) -> StepLog:
    try:
        packed = unseal(envelope, key, _step_context(namespace, trajectory_id))
        unpacking = zlib.decompressobj()
        payload = unpacking.decompress(packed, MOST_BYTES)
        if not unpacking.eof:
            raise Unreadable(f"it unpacks to more than {MOST_BYTES} bytes, or ends too early")
        (size,) = _LENGTH.unpack_from(payload)
    except (Unreadable, zlib.error, struct.error) as error:
        raise _damaged(trajectory_id, error) from error
    steps, last = payload[_LENGTH.size : _LENGTH.size + size], payload[_LENGTH.size + size :]
    return StepLog(trajectory_id, steps.decode(), last.decode() or None)


def _envelope(log: StepLog) -> bytes:
    try:
        return base64.b64decode(orjson.loads(log.steps or "")["sealed"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise _damaged(log.trajectory_id, error) from error


def _key_id(log: StepLog, envelope: bytes) -> UUID:
    try:
        return key_id_of(envelope)
    except Unreadable as error:
        raise _damaged(log.trajectory_id, error) from error


def _damaged(trajectory_id: str, error: Exception) -> Damaged:
    return Damaged(f"the steps of trajectory {trajectory_id}", str(error) or type(error).__name__)
