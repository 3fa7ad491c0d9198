"""Erasures and opt-outs, remembered outside of the database, where an older backup of it does not bring them back.

One object each in the artifact store, and its key says all: namespace, subject and instant. Subjects are agents by name
and people by their keyed hash, as in the database. Nothing is ever read from an object; a record is there or it is not.
"""

import asyncio
import os
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, unquote

from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.errors import Unavailable

FOLDER = ".erasures"
"""No namespace begins with a dot."""
OPTED_OUT = "opted-out"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Recorded:
    """What is on record of one namespace: the newest erasure of each subject, and the hashes of who opted out."""

    erased: dict[str, datetime] = field(default_factory=dict)
    opted_out: set[str] = field(default_factory=set)


class LastingRecords:
    """The records of all namespaces.

    Args:
        store: not sealed by keys of the database, which an older backup does not have.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    async def erased(self, namespace: str, subject: str, at: datetime) -> None:
        """Before the rows go: a record of an erasure that was then not made leads to one that was asked for.

        Raises:
            Unavailable: the store does not take it.
        """
        await self._put(_key(namespace, subject, str((at - _EPOCH) // timedelta(microseconds=1))))

    async def opted_out(self, namespace: str, user: str) -> None:
        """Raises Unavailable."""
        await self._put(_key(namespace, f"user/{user}", OPTED_OUT))

    async def opted_in(self, namespace: str, user: str) -> None:
        """Raises Unavailable."""
        await self._store.delete(_key(namespace, f"user/{user}", OPTED_OUT))

    async def all(self) -> dict[str, Recorded]:
        """Everything on record, by namespace. What does not look like a record is none.

        Raises:
            Unavailable: the store does not answer.
        """
        found: dict[str, Recorded] = {}
        for key in await self._store.keys(f"{FOLDER}/"):
            parts = key.split("/")
            if len(parts) != 4:
                continue
            namespace, subject, what = parts[1], unquote(parts[2]), parts[3]
            known = found.setdefault(namespace, Recorded())
            if what == OPTED_OUT:
                known.opted_out.add(subject.removeprefix("user/"))
            elif what.isascii() and what.isdecimal() and len(what) <= 18:
                at = _EPOCH + timedelta(microseconds=int(what))
                known.erased[subject] = max(at, known.erased.get(subject, at))
        return found

    async def _put(self, key: str) -> None:
        try:
            file = await asyncio.to_thread(_written, self._store.spool)
        except OSError as error:
            raise Unavailable(f"the artifact store ({error.strerror})", retry_after=30) from error
        try:
            await self._store.put(key, file)
        finally:
            file.unlink(missing_ok=True)


def _key(namespace: str, subject: str, what: str) -> str:
    return f"{FOLDER}/{namespace}/{quote(subject, safe='')}/{what}"


def _written(folder: Path) -> Path:
    """A file that is not empty: some stores keep no empty object."""
    handle, name = tempfile.mkstemp(dir=folder, prefix="erasure-")
    with os.fdopen(handle, "wb") as file:
        file.write(b"erased\n")
        file.flush()
        os.fsync(file.fileno())
    return Path(name)
