"""Puts what is pending into the chain, one process at a time for each namespace."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from learnloop_dataplane.audit.chain import GENESIS, Detail, Entry, Sealed, canonical, seal
from learnloop_dataplane.postgres.database import Database

BATCH = 1000
_PENDING = """
SELECT EXISTS(SELECT 1 FROM audit_pending p WHERE p.namespace = s.namespace)
FROM set_config('app.namespace', $1, true) AS s(namespace)
"""
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('audit/' || $1, 0))"
_TAKE = """
DELETE FROM audit_pending WHERE namespace = $1 AND id = ANY(ARRAY(
    SELECT id FROM audit_pending WHERE namespace = $1 ORDER BY id LIMIT $2))
RETURNING id, at, actor, action, subject, outcome, detail
"""
_END = "SELECT seq, hash FROM audit_log WHERE namespace = $1 ORDER BY seq DESC LIMIT 1"
_APPEND = """
INSERT INTO audit_log (namespace, seq, at, actor, action, subject, outcome, detail, previous, hash)
SELECT $1, * FROM unnest($2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::text[], $8::jsonb[],
    $9::bytea[], $10::bytea[])
"""


class Sealer:
    """Orders and links records.

    Args:
        copy: called in a thread with records that are in the chain.
    """

    def __init__(self, db: Database, copy: Callable[[Sequence[Sealed]], None] | None = None) -> None:
        self._db = db
        self._copy = copy

    async def run(self, namespace: str) -> int:
        """Seals all pending records of a namespace and returns their number.

        Raises:
            Unavailable: the rest stays pending.
        """
        done = 0
        [(pending,)] = await self._db.fetch_as(namespace, _PENDING)
        while pending:
            async with self._db.tenant(namespace) as connection:
                sealed = await seal_pending(connection, namespace)
            await self._copied(sealed)
            done += len(sealed)
            pending = len(sealed) == BATCH
        return done

    async def append(self, namespace: str, action: str, subject: str, actor: str, detail: Detail) -> Sealed:
        """Seals what is pending and then this record, in one transaction.

        Raises:
            Unavailable: it is not in the chain.
        """
        sealed: list[Sealed] = []
        async with self._db.tenant(namespace) as connection:
            while len(batch := await seal_pending(connection, namespace)) == BATCH:
                sealed += batch
            entry = Entry(namespace, 0, datetime.now(UTC), actor, action, subject, "done", detail)
            sealed += batch + await _link(connection, namespace, [entry])
        await self._copied(sealed)
        return sealed[-1]

    async def _copied(self, sealed: Sequence[Sealed]) -> None:
        if self._copy is not None and sealed:
            await asyncio.to_thread(self._copy, sealed)  # a full pipe stops this thread, and no request


async def seal_pending(connection: Any, namespace: str) -> list[Sealed]:
    """Moves up to a thousand pending records into the chain, within the caller's transaction."""
    await connection.execute(_LOCK, namespace)
    rows = sorted(await connection.fetch(_TAKE, namespace, BATCH), key=lambda row: int(row["id"]))
    entries = [
        Entry(namespace, 0, r["at"], r["actor"], r["action"], r["subject"], r["outcome"], orjson.loads(r["detail"]))
        for r in rows
    ]
    return await _link(connection, namespace, entries)


async def _link(connection: Any, namespace: str, entries: Sequence[Entry]) -> list[Sealed]:
    """Appends entries, which have no place yet."""
    if not entries:
        return []
    end = await connection.fetchrow(_END, namespace)
    seq, previous = (end["seq"], bytes(end["hash"])) if end else (0, GENESIS)
    links: list[Sealed] = []
    for number, entry in enumerate(entries, seq + 1):
        links.append(seal(previous, replace(entry, seq=number)))
        previous = links[-1].hash
    columns = zip(*(_columns(link) for link in links), strict=True)
    await connection.execute(_APPEND, namespace, *(list(column) for column in columns))
    return links


def _columns(link: Sealed) -> tuple[Any, ...]:
    entry = link.entry
    values = (entry.seq, entry.at, entry.actor, entry.action, entry.subject, entry.outcome)
    return (*values, orjson.dumps(entry.detail).decode(), link.previous, link.hash)


APP, STREAM = "learnloop-data", "audit"


def write(sealed: Sequence[Sealed], stream: TextIO | None = None) -> None:
    """Writes a JSON line for each record; a closed stream loses the copy and never the record."""
    output = sys.stdout if stream is None else stream
    with suppress(OSError, ValueError):
        output.write("".join(f"{line_of(link)}\n" for link in sealed))
        output.flush()


def line_of(link: Sealed) -> str:
    """The record as one line of JSON."""
    return canonical({"app": APP, "stream": STREAM, "hash": link.hash.hex(), **asdict(link.entry)}).decode()
