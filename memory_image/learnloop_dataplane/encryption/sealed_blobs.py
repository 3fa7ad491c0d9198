"""Artifacts and checkpoints as envelopes in any blob store."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from learnloop_common.encryption import (
    CHUNK_BYTES,
    HEADER_BYTES,
    DataKey,
    Opener,
    Unreadable,
    is_sealed,
    sealed,
)
from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.encryption.step_cipher import DataKeys
from learnloop_dataplane.errors import Damaged, Unavailable


class SealedBlobs:
    """A blob store whose blobs are sealed by the key of the namespace that their key begins with.

    Blobs from before encryption was switched on are read as they are.
    """

    def __init__(self, inner: BlobStore, keys: DataKeys) -> None:
        self._inner, self._keys = inner, keys
        self._sealing = inner.spool
        # Uploads wait on the pod's own disk: on the volume of the blobs, deleted bytes could still be read.
        self.spool = Path(tempfile.mkdtemp(prefix="learnloop-uploads-"))

    async def put(self, key: str, file: Path) -> None:
        """See BlobStore. Raises Unavailable."""
        data_key = await self._keys.of_namespace(_namespace(key))
        target = Path(self._sealing) / f"sealed-{uuid4()}"
        try:
            await asyncio.to_thread(_seal, file, target, data_key, key)
            await self._inner.put(key, target)
        except OSError as error:
            raise Unavailable(f"the artifact store ({error.strerror})", retry_after=30) from error
        finally:
            target.unlink(missing_ok=True)
            file.unlink(missing_ok=True)

    async def open(self, key: str) -> AsyncIterator[bytes] | None:
        """See BlobStore. Raises Unavailable, and Damaged."""
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
        return _opened(bytes(head), chunks, await self._keys.of_namespace(_namespace(key)), key)

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


def _seal(source: Path, target: Path, data_key: DataKey, context: str) -> None:
    with source.open("rb") as plain, target.open("wb") as file:
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
        if plain := await asyncio.to_thread(opener.update, head[HEADER_BYTES:]):
            yield plain
        async for chunk in rest:
            if plain := await asyncio.to_thread(opener.update, chunk):
                yield plain
        yield opener.finish()
    except Unreadable as error:
        raise Damaged(f"the blob {key}", str(error)) from error
