"""Artifacts and checkpoints in an S3 bucket."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import NotFoundError
from obstore.store import S3Store

from learnloop_dataplane.blobs.blob_store import CHUNK
from learnloop_dataplane.errors import Unavailable

# Which of the two an operation raises depends on the version of obstore.
MISSING = (NotFoundError, FileNotFoundError)


class S3Blobs:
    """Blobs as objects; credentials, region and endpoint come from the usual AWS_* variables."""

    def __init__(self, url: str) -> None:
        self._store = S3Store.from_url(url, retry_config={"max_retries": 3})
        self.spool = Path(tempfile.gettempdir()) / "learnloop-spool"
        shutil.rmtree(self.spool, ignore_errors=True)
        self.spool.mkdir(parents=True, exist_ok=True)

    async def put(self, key: str, file: Path) -> None:
        """See BlobStore. An object appears only when its upload, in parts when it is large, is complete."""
        await self._call(obstore.put_async(self._store, key, file))

    async def open(self, key: str) -> AsyncIterator[bytes] | None:
        """See BlobStore."""
        try:
            result = await self._call(obstore.get_async(self._store, key))
        except MISSING:
            return None
        return _bytes(result.stream(min_chunk_size=CHUNK))

    async def delete(self, key: str) -> None:
        """See BlobStore."""
        with suppress(*MISSING):
            await self._call(obstore.delete_async(self._store, key))

    async def keys(self, prefix: str) -> list[str]:
        """See BlobStore."""
        return await self._call(self._keys(prefix))  # type: ignore[no-any-return]

    async def _keys(self, prefix: str) -> list[str]:
        return [found["path"] async for page in obstore.list(self._store, prefix) for found in page]

    async def ping(self) -> None:
        """See BlobStore: the bucket says whether it has a certain object."""
        with suppress(*MISSING):
            await self._call(obstore.head_async(self._store, ".learnloop"))

    async def _call(self, operation: Any) -> Any:
        try:
            return await operation
        except MISSING:
            raise
        except (obstore.exceptions.BaseError, OSError) as error:
            raise Unavailable(f"the S3 bucket ({type(error).__name__})", retry_after=5) from error


async def _bytes(stream: Any) -> AsyncIterator[bytes]:
    async for chunk in stream:
        yield bytes(chunk)
