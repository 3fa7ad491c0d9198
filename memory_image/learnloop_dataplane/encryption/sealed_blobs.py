"""Artifacts and checkpoints as envelopes in any blob store."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from learnloop_common.encryption import (
    CHUNK_BYTES,
    HEADER_BYTES,
    DataKey,
    Opener,
    Unreadable,
    is_sealed,
    key_id_of,
    sealed,
)
from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.encryption.step_cipher import DataKeys
from learnloop_dataplane.errors import Damaged, Unavailable
from learnloop_dataplane.postgres.database import Database


class SealedBlobs:
    """A blob store whose blobs are sealed by the key of the namespace that their key begins with.

    What lay there before encryption was switched on is read as it is.
    """

    def __init__(self, inner: BlobStore, db: Database, keys: DataKeys) -> None:
        self._inner, self._db, self._keys = inner, db, keys
        self._sealing = inner.spool
        # Uploads wait on the pod's own disk: on the volume of the blobs, deleted bytes could still be read.
        self.spool = Path(tempfile.mkdtemp(prefix="learnloop-uploads-"))

    async def put(self, key: str, file: Path) -> None:
        """See BlobStore. Raises Unavailable."""
        data_key = await self._keys.of_namespace(_namespace(key))
        try:
            handle, name = await asyncio.to_thread(tempfile.mkstemp, dir=self._sealing, prefix="sealed-")
        except OSError as error:
            raise Unavailable(f"the artifact store ({error.strerror})", retry_after=30) from error
        target = Path(name)
        try:
            try:
                await asyncio.to_thread(_seal, file, handle, data_key, key)
            except OSError as error:
                raise Unavailable(f"the artifact store ({error.strerror})", retry_after=30) from error
            await self._inner.put(key, target)
        finally:
            with suppress(FileNotFoundError):
                target.unlink()
            with suppress(FileNotFoundError):
                file.unlink()

    async def open(self, key: str) -> AsyncIterator[bytes] | None:
        """See BlobStore; None, too, where its key was destroyed. Raises Unavailable, and Damaged."""
        chunks = await self._inner.open(key)
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
        try:
            key_id = key_id_of(bytes(head))
        except Unreadable as error:
            raise Damaged(f"the blob {key}", str(error)) from error
        namespace = _namespace(key)
        async with self._db.tenant(namespace) as connection:
            found = await self._keys.by_id(connection, namespace, [key_id])
        if key_id not in found:
            return None
        return _opened(bytes(head), chunks, found[key_id], key)

    async def delete(self, key: str) -> None:
        """See BlobStore."""
        await self._inner.delete(key)

    async def keys(self, prefix: str) -> list[str]:
        """See BlobStore."""
        return await self._inner.keys(prefix)

    async def ping(self) -> None:
        """See BlobStore."""
        await self._inner.ping()


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def _seal(source: Path, target: int, data_key: DataKey, context: str) -> None:
    with source.open("rb") as plain, os.fdopen(target, "wb") as file:
        file.writelines(sealed(_chunks(plain), data_key, context))
        file.flush()
        os.fsync(file.fileno())


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


async def _as_it_is(head: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield head
    async for chunk in rest:
        yield chunk


async def _opened(head: bytes, rest: AsyncIterator[bytes], data_key: DataKey, key: str) -> AsyncIterator[bytes]:
    try:
        opener = Opener(head[:HEADER_BYTES], data_key, key)
        if found := await asyncio.to_thread(opener.update, head[HEADER_BYTES:]):
            yield found
        async for chunk in rest:
            if found := await asyncio.to_thread(opener.update, chunk):
                yield found
        yield opener.finish()
    except Unreadable as error:
        raise Damaged(f"the blob {key}", str(error)) from error
