"""Erasures on record outside the database: after an old backup is restored, they are made again."""

import io
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

from learnloop_dataplane import blobs
from learnloop_dataplane.postgres.database import Database

_ERASURES = "SELECT subject, erased_at FROM erasures WHERE namespace = $1"
_OUT = "SELECT user_hash FROM user_opt_outs WHERE namespace = $1"
FOLDER = ".erasures"
"""No namespace begins with a dot."""
OPTED_OUT = "opted-out"
_RECORD = b"erased\n"
"""Some stores keep no empty object."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Recorded:
    """Records of one namespace: the newest erasure of each subject, and the hashes of people who opted out."""

    erased: dict[str, datetime] = field(default_factory=dict)
    opted_out: set[str] = field(default_factory=set)


class LastingRecords:
    """The records of all namespaces.

    Args:
        store: not sealed by keys of the database, which an older backup does not have.
    """

    def __init__(self, store: blobs.Blobs) -> None:
        self._store = store

    async def erased(self, namespace: str, subject: str, at: datetime) -> None:
        """Before the rows go: a record of an erasure that was then not made leads to one that was asked for.

        Raises:
            Unavailable: the store does not take it.
        """
        await self._store.put(
            _key(namespace, subject, str((at - _EPOCH) // timedelta(microseconds=1))), io.BytesIO(_RECORD)
        )

    async def opted_out(self, namespace: str, user: str) -> None:
        """Raises Unavailable."""
        await self._store.put(_key(namespace, f"user/{user}", OPTED_OUT), io.BytesIO(_RECORD))

    async def opted_in(self, namespace: str, user: str) -> None:
        """Raises Unavailable."""
        await self._store.delete(_key(namespace, f"user/{user}", OPTED_OUT))

    async def all(self) -> dict[str, Recorded]:
        """Everything on record, by namespace. What does not look like a record is none.

        Raises:
            Unavailable: the store does not answer.
        """
        records: dict[str, Recorded] = {}
        for key in await self._store.keys(f"{FOLDER}/"):
            parts = key.split("/")
            if len(parts) != 5:
                continue
            namespace, subject, what = parts[1], f"{parts[2]}/{unquote(parts[3])}", parts[4]
            record = records.setdefault(namespace, Recorded())
            if what == OPTED_OUT:
                record.opted_out.add(subject.removeprefix("user/"))
            elif what.isascii() and what.isdecimal() and len(what) <= 18:
                at = _EPOCH + timedelta(microseconds=int(what))
                record.erased[subject] = max(at, record.erased.get(subject, at))
        return records

    async def lost(self, db: Database) -> list[tuple[str, Recorded]]:
        """Erasures and opt-outs that are on record, and that a restored database knows nothing of, by namespace."""
        result = []
        for namespace, recorded in (await self.all()).items():
            async with db.tenant(namespace) as connection:
                present = {row["subject"]: row["erased_at"] for row in await connection.fetch(_ERASURES, namespace)}
                out = {row["user_hash"] for row in await connection.fetch(_OUT, namespace)}
            erased = {key: at for key, at in recorded.erased.items() if key not in present or present[key] < at}
            result.append((namespace, Recorded(erased, recorded.opted_out - out)))
        return result


def _key(namespace: str, subject: str, what: str) -> str:
    kind, _, name = subject.partition("/")  # of folders of their own: no part of a path is over 255 bytes
    return f"{FOLDER}/{namespace}/{kind}/{quote(name, safe='')}/{what}"
