"""The steps of an episode as a sealed column: `{"sealed": Base64, "fingerprint": hexadecimal}` in place of their array.

What is sealed is compressed before, as it cannot be after. The last observation goes into the same envelope. The
fingerprint is the same for the same steps of a namespace, and for its key's holder alone: who looks for episodes that
repeat needs to open none.
"""

import asyncio
import base64
import binascii
import hmac
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from learnloop_common.encryption.envelope import DataKey, Unreadable, key_id_of, seal, unseal
from learnloop_dataplane.encryption.data_keys import NAMESPACE, DataKeys, Owner
from learnloop_dataplane.errors import Damaged, KeyMissing
from learnloop_dataplane.postgres.database import Database

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


def _context(namespace: str, trajectory_id: str) -> str:
    return f"{namespace}/steps/{trajectory_id}"


def _sealed(namespace: str, log: StepLog, key: DataKey, own: DataKey) -> StepLog:
    if log.steps is None:
        return log
    steps, last = log.steps.encode(), (log.last_observation or "").encode()
    payload = zlib.compress(_LENGTH.pack(len(steps)) + steps + last, level=1)
    envelope = seal(payload, key, _context(namespace, log.trajectory_id))
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
        packed = unseal(envelope, key, _context(namespace, trajectory_id))
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
