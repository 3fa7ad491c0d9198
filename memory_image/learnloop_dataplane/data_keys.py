"""Seals episodes' steps and blobs by one data key for each namespace, which the configured keys wrap."""

import asyncio
import base64
import binascii
import hmac
import os
import struct
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import orjson

from learnloop_common.sealed_bytes import (
    CHUNK_BYTES,
    HEADER_BYTES,
    KEY_BYTES,
    DataKey,
    Opener,
    Unreadable,
    is_sealed,
    seal,
    sealed,
    unseal,
)
from learnloop_dataplane import blobs, config, errors
from learnloop_dataplane.postgres.database import Database, uuid7

_OF = "SELECT key_id, wrapping_key, wrapped FROM data_keys WHERE namespace = $1"
_MAKE = """
INSERT INTO data_keys (namespace, key_id, wrapping_key, wrapped) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING
"""
_OLD = f"{_OF} AND wrapping_key <> $2 FOR UPDATE SKIP LOCKED"
_REWRAP = "UPDATE data_keys SET wrapping_key = $2, wrapped = $3 WHERE namespace = $1"


class DataKeys:
    """The keys of all namespaces."""

    def __init__(self, db: Database, wrapping: config.WrappingKeys) -> None:
        self._db, self._wrapping = db, wrapping

    async def of_namespace(self, namespace: str) -> DataKey:
        """As `of`, with a connection of its own. Raises Unavailable."""
        async with self._db.tenant(namespace) as connection:
            return await self.of(connection, namespace)

    async def of(self, connection: Any, namespace: str) -> DataKey:
        """The key of a namespace, made by the first call.

        Raises:
            KeyMissing: its wrapping key is not configured.
        """
        row = await connection.fetchrow(_OF, namespace)
        if row is None:
            made = DataKey(uuid7(), os.urandom(KEY_BYTES))
            wrapped = self._wrapping.wrap(made.secret, _context(namespace, made.key_id))
            await connection.execute(_MAKE, namespace, made.key_id, self._wrapping.newest, wrapped)
            row = await connection.fetchrow(_OF, namespace)
        return self._key(namespace, row)

    async def rewrap(self, namespace: str) -> int:
        """Wraps the key again if an older key has wrapped it; returns how many.

        Raises:
            KeyMissing: the older key's line was removed too early.
        """
        async with self._db.tenant(namespace) as connection:
            row = await connection.fetchrow(_OLD, namespace, self._wrapping.newest)
            if row is None:
                return 0
            key = self._key(namespace, row)
            wrapped = self._wrapping.wrap(key.secret, _context(namespace, key.key_id))
            await connection.execute(_REWRAP, namespace, self._wrapping.newest, wrapped)
        return 1

    def _key(self, namespace: str, row: Any) -> DataKey:
        key_id = row["key_id"]
        return DataKey(key_id, self._wrapping.unwrap(row["wrapped"], row["wrapping_key"], _context(namespace, key_id)))


def _context(namespace: str, key_id: object) -> str:
    """A wrapped key that is copied to another namespace does not unwrap there."""
    return f"{namespace}/{key_id}"


MOST_BYTES = 256 * 2**20
"""Of an opened envelope; far above the limit of intake."""
_LENGTH = struct.Struct(">Q")


class StepLog(NamedTuple):
    """Steps of one episode and the observation after them, as JSON; None: there is none, or it is not read."""

    trajectory_id: str
    steps: str | None
    last_observation: str | None = None


class StepCipher:
    """Seals what is written and opens what is read. Without keys it returns both unchanged."""

    def __init__(self, keys: DataKeys | None) -> None:
        self._keys = keys

    async def seal(self, connection: Any, namespace: str, logs: Sequence[StepLog]) -> Sequence[StepLog]:
        """The logs as they are stored. Raises KeyMissing."""
        if self._keys is None:
            return logs
        key = await self._keys.of(connection, namespace)
        return await asyncio.to_thread(lambda: [_sealed(namespace, log, key) for log in logs])

    async def open(self, connection: Any, namespace: str, logs: Sequence[StepLog]) -> Sequence[StepLog]:
        """The logs as they were before they were sealed.

        Raises:
            KeyMissing: no keys are configured, or one is missing.
            Damaged: a column was changed.
        """
        if not any(is_envelope(log.steps) for log in logs):
            return logs
        if self._keys is None:
            raise errors.KeyMissing("episodes are sealed and LEARNLOOP_ENCRYPTION_KEYS is not set; give the keys back")
        key = await self._keys.of(connection, namespace)
        return await asyncio.to_thread(lambda: [_opened(namespace, log, key) for log in logs])

    async def open_rows(
        self, db: Database, namespace: str, rows: Sequence[Mapping[str, Any]], column: str = "log"
    ) -> Sequence[Mapping[str, Any]]:
        """The rows with `column` opened, and `last_observation` where they have it. Rows have a `trajectory_id`.

        Raises:
            Unavailable: PostgreSQL does not answer; and as `open`.
        """
        if not any(is_envelope(row[column]) for row in rows):
            return rows
        logs = [StepLog(row["trajectory_id"], row[column], row.get("last_observation")) for row in rows]
        async with db.tenant(namespace) as connection:
            opened = await self.open(connection, namespace, logs)
        return [_with(row, column, log) for row, log in zip(rows, opened, strict=True)]


PLAIN = StepCipher(None)
"""Seals nothing."""


def is_envelope(steps: str | None) -> bool:
    """True for an envelope; plain steps are an array."""
    return steps is not None and steps.startswith("{")


def _with(row: Mapping[str, Any], column: str, log: StepLog) -> Mapping[str, Any]:
    last = {"last_observation": log.last_observation} if "last_observation" in row else {}
    return {**row, column: log.steps, **last}


def _step_context(namespace: str, trajectory_id: str) -> str:
    return f"{namespace}/steps/{trajectory_id}"


def _sealed(namespace: str, log: StepLog, key: DataKey) -> StepLog:
    if log.steps is None:
        return log
    steps, last = log.steps.encode(), (log.last_observation or "").encode()
    payload = zlib.compress(_LENGTH.pack(len(steps)) + steps + last, level=1)
    envelope = seal(payload, key, _step_context(namespace, log.trajectory_id))
    fingerprint = hmac.digest(key.secret, b"fingerprint of steps\0" + steps, "sha256")[:16]
    stored = {"sealed": base64.b64encode(envelope).decode(), "fingerprint": fingerprint.hex()}
    return StepLog(log.trajectory_id, orjson.dumps(stored).decode(), None)


def _opened(namespace: str, log: StepLog, key: DataKey) -> StepLog:
    if not is_envelope(log.steps):
        return log
    try:
        envelope = base64.b64decode(orjson.loads(log.steps or "")["sealed"], validate=True)
        unpacking = zlib.decompressobj()
        payload = unpacking.decompress(unseal(envelope, key, _step_context(namespace, log.trajectory_id)), MOST_BYTES)
        if not unpacking.eof:
            raise Unreadable(f"it unpacks to more than {MOST_BYTES} bytes, or ends too early")
        (size,) = _LENGTH.unpack_from(payload)
    except (KeyError, TypeError, ValueError, binascii.Error, zlib.error, struct.error) as error:
        why = str(error) or type(error).__name__
        raise errors.Damaged(f"the steps of trajectory {log.trajectory_id}", why) from error
    steps, last = payload[_LENGTH.size : _LENGTH.size + size], payload[_LENGTH.size + size :]
    return StepLog(log.trajectory_id, steps.decode(), last.decode() or None)


class SealedBlobs(blobs.Blobs):
    """Blobs sealed by the key of the namespace that their own key begins with.

    Blobs from before encryption was switched on are read as they are.
    """

    def __init__(self, url: str, keys: DataKeys) -> None:
        super().__init__(url)
        self._keys = keys

    async def put(self, key: str, file: BinaryIO) -> None:
        data_key = await self._keys.of_namespace(_namespace(key))
        try:
            with tempfile.TemporaryFile() as target:
                await asyncio.to_thread(_seal, file, target, data_key, key)
                await super().put(key, target)
        except OSError as error:
            raise errors.Unavailable(f"the artifact store ({error.strerror})", retry_after=30) from error

    async def open(self, key: str) -> AsyncIterator[bytes] | None:
        """See Blobs. Raises Damaged for a changed envelope."""
        chunks = await super().open(key)
        if chunks is None:
            return None
        head = bytearray()
        while len(head) < HEADER_BYTES:
            try:
                head += await anext(chunks)
            except StopAsyncIteration:
                break
        if not is_sealed(bytes(head)):
            return _as_it_is(bytes(head), chunks)
        return _unsealed(bytes(head), chunks, await self._keys.of_namespace(_namespace(key)), key)


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def _seal(source: BinaryIO, target: BinaryIO, data_key: DataKey, context: str) -> None:
    source.seek(0)
    target.writelines(sealed(_chunks(source), data_key, context))


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


async def _as_it_is(head: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield head
    async for chunk in rest:
        yield chunk


async def _unsealed(head: bytes, rest: AsyncIterator[bytes], data_key: DataKey, key: str) -> AsyncIterator[bytes]:
    try:
        opener = Opener(head[:HEADER_BYTES], data_key, key)
        if plain := await asyncio.to_thread(opener.update, head[HEADER_BYTES:]):
            yield plain
        async for chunk in rest:
            if plain := await asyncio.to_thread(opener.update, chunk):
                yield plain
        yield opener.finish()
    except Unreadable as error:
        raise errors.Damaged(f"the blob {key}", str(error)) from error
