"""Artifacts and checkpoints as envelopes in any blob store."""

import asyncio
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
from learnloop_dataplane.blobs.blob_store import Blobs
from learnloop_dataplane.encryption.step_cipher import DataKeys
from learnloop_dataplane.errors import Damaged, Unavailable


class SealedBlobs(Blobs):
    """Blobs sealed by the key of the namespace that their own key begins with.

    Blobs from before encryption was switched on are read as they are.
    """

    def __init__(self, url: str, keys: DataKeys) -> None:
        super().__init__(url)
        self._keys = keys

    async def put(self, key: str, file: Path) -> None:
        data_key = await self._keys.of_namespace(_namespace(key))
        target = self.spool / f"sealed-{uuid4()}"
        try:
            await asyncio.to_thread(_seal, file, target, data_key, key)
            await super().put(key, target)
        except OSError as error:
            raise Unavailable(f"the artifact store ({error.strerror})", retry_after=30) from error
        finally:
            target.unlink(missing_ok=True)

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
        return _opened(bytes(head), chunks, await self._keys.of_namespace(_namespace(key)), key)


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def _seal(source: Path, target: Path, data_key: DataKey, context: str) -> None:
    with source.open("rb") as plain, target.open("wb") as file:
        file.writelines(sealed(_chunks(plain), data_key, context))


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
