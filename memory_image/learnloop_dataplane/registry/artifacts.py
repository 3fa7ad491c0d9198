"""Content-addressed artifacts: written once, read by their digest, only within their namespace."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from learnloop_dataplane.blobs.blob_store import BlobStore, Spooled, spooled
from learnloop_dataplane.errors import ApiError, Unavailable
from learnloop_dataplane.postgres.database import Database

_PUT = "INSERT INTO artifacts (namespace, sha256, size_bytes) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
_TOUCH = "UPDATE artifacts SET used_at = now() WHERE namespace = $1 AND sha256 = $2"
_GET = "SELECT size_bytes FROM artifacts WHERE namespace = $1 AND sha256 = $2"

LOOK_SECONDS = 10.0


@dataclass(frozen=True)
class Content:
    """A blob about to be sent."""

    sha256: str
    size: int
    chunks: AsyncIterator[bytes]


class Artifacts:
    """The registry of one data plane.

    Args:
        max_bytes: what an upload may have at most.
    """

    def __init__(self, db: Database, blobs: BlobStore, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._db = db
        self._blobs = blobs
        self.problem = ""
        """Why nothing can be uploaded now; empty while the store answers."""

    async def look(self) -> None:
        """Finds out whether the store answers, in the background: one that is slow must not hold a probe up."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._blobs.ping()
        except Unavailable as error:
            self.problem = error.message
        except TimeoutError:
            self.problem = f"the artifact store does not answer within {LOOK_SECONDS:.0f} s"
        else:
            self.problem = ""

    def receive(
        self, chunks: AsyncIterator[bytes], sha256: str, max_bytes: int | None = None
    ) -> AbstractAsyncContextManager[Spooled]:
        """An upload in a file, as long as the context lasts, once its digest and size are checked; see `spooled`."""
        return spooled(chunks, self._blobs, sha256=sha256, max_bytes=max_bytes or self._max_bytes)

    async def put(self, namespace: str, upload: Spooled) -> None:
        """Keeps a verified upload. The blob comes first: a row never points to nothing.

        Raises:
            Unavailable: not kept; sending it again is safe.
        """
        # Touched first: what is old and about to be deleted is either safe from here on, or already gone.
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_TOUCH, namespace, upload.sha256)
        await self._blobs.put(artifact_key(namespace, upload.sha256), upload.path)
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_PUT, namespace, upload.sha256, upload.size)

    async def use(self, namespace: str, sha256: str) -> None:
        """Says that it is in use: it is kept so many days from now on.

        Raises:
            Unavailable: nothing was written.
        """
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_TOUCH, namespace, sha256)

    async def get(self, namespace: str, sha256: str) -> Content:
        """The artifact's content.

        Raises:
            ApiError: 404, this namespace has no such artifact.
            Unavailable: try again.
        """
        async with self._db.tenant(namespace) as connection:
            size = await connection.fetchval(_GET, namespace, sha256)
        chunks = None if size is None else await self._blobs.open(artifact_key(namespace, sha256))
        if chunks is None:
            raise ApiError(
                404, "this namespace has no such artifact; check the URI or upload it", field="sha256", value=sha256
            )
        return Content(sha256, size, chunks)


async def bounded(artifacts: Artifacts, namespace: str, sha256: str, most: int) -> Content:
    """An artifact of at most `most` bytes, which is in use from now on.

    Raises:
        ApiError: 404, there is none; 413, it is larger.
        Unavailable: try again.
    """
    content = await artifacts.get(namespace, sha256)
    if content.size > most:
        told = f"it has {content.size} bytes, and {most} is the most that is read here; train a smaller one"
        raise ApiError(413, told, field="sha256", value=sha256)
    await artifacts.use(namespace, sha256)
    return content


def artifact_key(namespace: str, sha256: str) -> str:
    """Where the blob of an artifact lies."""
    return f"{namespace}/artifacts/{sha256[:2]}/{sha256}"
