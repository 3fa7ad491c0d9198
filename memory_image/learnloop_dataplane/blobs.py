"""The artifact store: artifacts and checkpoints in a directory or an S3 bucket, by obstore.

An upload is in a file without a name while its digest is computed. A matching one is put under its final key in one
step: no reader sees part of a blob.
"""

import asyncio
import hashlib
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import LocalStore, S3Store

from learnloop_dataplane.errors import ApiError, Invalid, Unavailable

CHUNK = 2**20
IDLE_SECONDS = 30.0
UNFINISHED_SECONDS = 600.0
"""Since its last byte: another process may be writing a younger file."""
MISSING = (NotFoundError, FileNotFoundError)


class Blobs:
    """Immutable blobs by key.

    Args:
        url: LEARNLOOP_ARTIFACTS. Credentials, region and endpoint of a bucket come from the usual AWS_* variables.

    Raises:
        OSError: the directory cannot be created.
    """

    def __init__(self, url: str) -> None:
        self._folder = Path(url.removeprefix("file://")) if url.startswith("file://") else None
        self._store: LocalStore | S3Store
        if self._folder is None:
            self._store = S3Store.from_url(url, retry_config={"max_retries": 3})
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._store = LocalStore(self._folder)

    async def put(self, key: str, file: BinaryIO) -> None:
        """Stores a complete, verified file, from its beginning. Raises Unavailable."""
        file.seek(0)
        await self._call(obstore.put_async(self._store, key, file))
        if self._folder is not None:
            await _disk(_sync, self._folder / key)

    async def open(self, key: str) -> AsyncIterator[bytes] | None:
        """The content in chunks; None for an unknown key. Raises Unavailable."""
        try:
            result = await self._call(obstore.get_async(self._store, key))
        except MISSING:
            return None
        return _chunks(result.stream(min_chunk_size=CHUNK))

    async def delete(self, key: str) -> None:
        """Deletes a blob. Idempotent. Raises Unavailable."""
        with suppress(*MISSING):
            await self._call(obstore.delete_async(self._store, key))

    async def keys(self, prefix: str) -> list[str]:
        """The keys of all blobs below `prefix`, which is empty or ends in a slash. Raises Unavailable."""
        listed: list[str] = await self._call(self._listed(prefix))
        return listed

    async def sweep(self) -> None:
        """Deletes from a folder what killed processes left half written: KEY#NUMBER, which is never listed.

        Raises:
            Unavailable: some may be left.
        """
        if self._folder is not None:
            await _disk(_delete_unfinished, self._folder)

    async def _listed(self, prefix: str) -> list[str]:
        return [item["path"] async for page in obstore.list(self._store, prefix or None) for item in page]

    async def ping(self) -> None:
        """Raises Unavailable while the store cannot be used."""
        if self._folder is not None and not await asyncio.to_thread(os.access, self._folder, os.W_OK):
            raise Unavailable("the artifact store (its directory is gone or read-only)", retry_after=30)
        with suppress(*MISSING):
            await self._call(obstore.head_async(self._store, ".learnloop"))

    async def _call(self, operation: Any) -> Any:
        try:
            return await operation
        except MISSING:
            raise
        except (BaseError, OSError) as error:
            store = "the artifact store" if self._folder else "the S3 bucket"
            raise Unavailable(f"{store} ({type(error).__name__})", retry_after=5) from error


async def _chunks(stream: Any) -> AsyncIterator[bytes]:
    async for chunk in stream:
        yield bytes(chunk)


def _delete_unfinished(folder: Path) -> None:
    for path in folder.rglob("*#*"):
        with suppress(OSError):  # one that cannot be deleted keeps no other
            old = path.stat().st_mtime < time.time() - UNFINISHED_SECONDS
            if old and re.search(r"#\d+$", path.name) and path.is_file():
                path.unlink()


def _sync(path: Path) -> None:
    """Makes a file and its name survive a power cut."""
    for name in (path, path.parent):
        handle = os.open(name, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@dataclass(frozen=True)
class Spooled:
    """A complete upload with the announced digest."""

    file: BinaryIO
    sha256: str
    size: int


@asynccontextmanager
async def spooled(body: AsyncIterator[bytes], *, sha256: str, max_bytes: int) -> AsyncIterator[Spooled]:
    """Receives an upload into a temporary file, whose space is free once this process closes it or is killed.

    Raises:
        ApiError: 413, more than max_bytes; 408, the sender stalls for 30 s.
        Invalid: the digest differs from `sha256`, or the body is empty.
        Unavailable: the disk is full or gone.
    """
    # On the pod's own disk: on a volume of the artifacts, deleted bytes could be read after encryption.
    with await _disk(tempfile.TemporaryFile) as file:
        digest, size = await _receive(body, file, max_bytes)
        if size == 0:
            raise Invalid("the body is empty; send the bytes of the file", field="body")
        if digest != sha256:
            raise Invalid(
                f"the body's SHA-256 is {digest}, not what the header says; send it again",
                field="x-learnloop-sha256",
                value=sha256,
            )
        file.seek(0)
        yield Spooled(file, digest, size)


async def _receive(body: AsyncIterator[bytes], file: Any, max_bytes: int) -> tuple[str, int]:
    hasher, size, iterator = hashlib.sha256(), 0, aiter(body)
    buffer = bytearray()
    while True:
        try:
            chunk = await asyncio.wait_for(anext(iterator), IDLE_SECONDS)
        except StopAsyncIteration:
            break
        except TimeoutError:
            raise ApiError(408, "the upload stalled for 30 s; send it again", field="body") from None
        size += len(chunk)
        if size > max_bytes:
            raise ApiError(413, f"more than {max_bytes} bytes; make it smaller", field="body", value=size)
        buffer += chunk
        if len(buffer) >= CHUNK:
            await _disk(_write, file, hasher, bytes(buffer))
            buffer.clear()
    await _disk(_write, file, hasher, bytes(buffer))
    await _disk(file.flush)
    return hasher.hexdigest(), size


def _write(file: Any, hasher: Any, chunk: bytes) -> None:
    hasher.update(chunk)
    file.write(chunk)


async def _disk(function: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return await asyncio.to_thread(function, *args, **kwargs)
    except OSError as error:
        raise Unavailable(f"the artifact store ({error.strerror})", retry_after=30) from error
