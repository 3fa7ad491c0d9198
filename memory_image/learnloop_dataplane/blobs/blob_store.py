"""Where the bytes of artifacts and checkpoints lie: a directory or an S3 bucket.

Bytes are first spooled to a temporary file while their digest is computed; only what matched is put in place, in one
step, under its final key. Nobody ever sees half a blob, and a crash leaves at most a spool file.
"""

import asyncio
import hashlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from learnloop_dataplane.errors import ApiError, Invalid, Unavailable

CHUNK = 2**20
IDLE_SECONDS = 30.0
STALE_SPOOL_SECONDS = 86_400.0


class BlobStore(Protocol):
    """Immutable blobs by key."""

    spool: Path

    async def put(self, key: str, file: Path) -> None:
        """Moves a complete, verified file in place. Raises Unavailable."""
        ...

    async def open(self, key: str) -> AsyncIterator[bytes] | None:
        """The content in chunks, or None when there is none. Raises Unavailable."""
        ...

    async def delete(self, key: str) -> None:
        """Removes a blob; one that is not there is fine. Raises Unavailable."""
        ...

    async def keys(self, prefix: str) -> list[str]:
        """The keys of all blobs below `prefix`, which is empty or ends in a slash. Raises Unavailable."""
        ...

    async def ping(self) -> None:
        """Finds out whether the store could be used now. Raises Unavailable."""
        ...


@dataclass(frozen=True)
class Spooled:
    """A complete upload whose digest was as announced."""

    path: Path
    sha256: str
    size: int


@asynccontextmanager
async def spooled(
    body: AsyncIterator[bytes], store: BlobStore, *, sha256: str, max_bytes: int
) -> AsyncIterator[Spooled]:
    """Receives an upload into a temporary file that is gone afterwards.

    Raises:
        ApiError: 413, more than max_bytes; 408, the sender stalls for 30 s.
        Invalid: the digest differs from `sha256`, or there is no content.
        Unavailable: the disk is full or gone.
    """
    handle, name = await _disk(tempfile.mkstemp, dir=store.spool, prefix="upload-")
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            digest, size = await _receive(body, file, max_bytes)
        if size == 0:
            raise Invalid("the body is empty; send the bytes of the file", field="body")
        if digest != sha256:
            raise Invalid(
                f"the body's SHA-256 is {digest}, not what the header says; send it again",
                field="x-learnloop-sha256",
                value=sha256,
            )
        yield Spooled(path, digest, size)
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


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
    await _disk(_sync, file)
    return hasher.hexdigest(), size


def _write(file: Any, hasher: Any, chunk: bytes) -> None:
    hasher.update(chunk)
    file.write(chunk)


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


async def _disk(function: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return await asyncio.to_thread(function, *args, **kwargs)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Unavailable(f"the artifact store ({error.strerror})", retry_after=30) from error


class FileBlobs:
    """Blobs as files below one directory, which must be one file system."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.spool = root / ".spool"
        self.spool.mkdir(parents=True, exist_ok=True)
        for path in self.spool.iterdir():
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_SPOOL_SECONDS:
                    path.unlink()

    async def put(self, key: str, file: Path) -> None:
        """See BlobStore: rename, then fsync of the directory, so that the name survives a power cut."""
        await _disk(self._put, key, file)

    def _put(self, key: str, file: Path) -> None:
        target = self._root / key
        target.parent.mkdir(parents=True, exist_ok=True)
        file.rename(target)
        directory = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    async def open(self, key: str) -> AsyncIterator[bytes] | None:
        """See BlobStore."""
        try:
            file = await _disk((self._root / key).open, "rb")
        except FileNotFoundError:
            return None
        return _chunks(file)

    async def delete(self, key: str) -> None:
        """See BlobStore."""
        with suppress(FileNotFoundError):
            await _disk((self._root / key).unlink)

    async def keys(self, prefix: str) -> list[str]:
        """See BlobStore."""
        found: list[str] = await _disk(self._keys, prefix)
        return found

    def _keys(self, prefix: str) -> list[str]:
        files = (path for path in (self._root / prefix).rglob("*") if path.is_file() and path.parent != self.spool)
        return [path.relative_to(self._root).as_posix() for path in files]

    async def ping(self) -> None:
        """See BlobStore: a byte can be written."""
        try:
            await _disk(self._try)
        except FileNotFoundError as error:
            raise Unavailable("the artifact store (its directory is gone)", retry_after=30) from error

    def _try(self) -> None:
        with tempfile.TemporaryFile(dir=self.spool) as file:
            file.write(b".")


async def _chunks(file: Any) -> AsyncIterator[bytes]:
    try:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk
    finally:
        file.close()


def open_blobs(url: str) -> BlobStore:
    """The store for LEARNLOOP_ARTIFACTS.

    Raises:
        OSError: the directory cannot be created.
    """
    if url.startswith("file://"):
        return FileBlobs(Path(url.removeprefix("file://")))
    from learnloop_dataplane.blobs.s3_bucket import S3Blobs  # 4 MiB of a process that keeps files does without

    return S3Blobs(url)
