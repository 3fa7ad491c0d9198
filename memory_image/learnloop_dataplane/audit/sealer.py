"""Puts what is pending into the chain, one process at a time for each namespace, and signs the end of it."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

import orjson

from learnloop_dataplane.audit.chain import GENESIS, Detail, Entry, Sealed, canonical, seal
from learnloop_dataplane.audit.signing import Checkpoint, Signer
from learnloop_dataplane.postgres.database import Database

BATCH = 1000
RECORDS_PER_CHECKPOINT = 1000
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
_SIGNED = "SELECT seq, at FROM audit_checkpoints WHERE namespace = $1 ORDER BY seq DESC LIMIT 1"
_SIGN = """
INSERT INTO audit_checkpoints (namespace, seq, at, hash, public_key, signature) VALUES ($1, $2, $3, $4, $5, $6)
"""


class Sealer:
    """Orders, links and signs records.

    Args:
        signer: None: the chain is linked but not signed.
        every: seconds between two checkpoints of a chain that grows.
        copy: called in a thread with records that are in the chain.
    """

    def __init__(
        self,
        db: Database,
        signer: Signer | None,
        *,
        every: float = 60.0,
        copy: Callable[[Sequence[Sealed]], None] | None = None,
    ) -> None:
        self._db = db
        self._signer = signer
        self._every = timedelta(seconds=every)
        self._copy = copy
        self._signed: set[str] = set()  # namespaces whose whole chain is signed

    async def run(self, namespace: str) -> int:
        """Seals all pending records of a namespace, signs when it is time, and returns the number of records.

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
        if self._signer is not None and (done or namespace not in self._signed):
            self._signed.discard(namespace)
            async with self._db.tenant(namespace) as connection:
                await connection.execute(_LOCK, namespace)
                if await self._sign(connection, namespace, self._signer):
                    self._signed.add(namespace)
        return done

    async def append(self, namespace: str, action: str, subject: str, actor: str, detail: Detail) -> Sealed:
        """Seals what is pending and then this record, in one transaction, and signs.

        Raises:
            Unavailable: it is not in the chain.
        """
        sealed: list[Sealed] = []
        async with self._db.tenant(namespace) as connection:
            while len(batch := await seal_pending(connection, namespace)) == BATCH:
                sealed += batch
            entry = Entry(namespace, 0, datetime.now(UTC), actor, action, subject, "done", detail)
            sealed += batch + await _link(connection, namespace, [entry])
            if self._signer is not None:
                await self._sign(connection, namespace, self._signer, now=True)
        await self._copied(sealed)
        return sealed[-1]

    async def _copied(self, sealed: Sequence[Sealed]) -> None:
        if self._copy is not None and sealed:
            await asyncio.to_thread(self._copy, sealed)  # a full pipe stops this thread, and no request

    async def _sign(self, connection: Any, namespace: str, signer: Signer, *, now: bool = False) -> bool:
        """Signs the end of the chain when it is time, or now; returns whether the whole chain is signed."""
        end = await connection.fetchrow(_END, namespace)
        newest = await connection.fetchrow(_SIGNED, namespace)
        grown = (end["seq"] if end else 0) - (newest["seq"] if newest else 0)
        if grown <= 0:
            return True
        due = newest is None or grown >= RECORDS_PER_CHECKPOINT or datetime.now(UTC) - newest["at"] >= self._every
        if due or now:
            made = Checkpoint.signed(signer, namespace, end["seq"], datetime.now(UTC), bytes(end["hash"]))
            await connection.execute(_SIGN, namespace, made.seq, made.at, made.hash, made.public_key, made.signature)
        return due or now


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
    try:
        output.write("".join(f"{line_of(link)}\n" for link in sealed))
        output.flush()
    except (OSError, ValueError):
        return


def line_of(link: Sealed) -> str:
    """The record as one line of JSON."""
    return canonical({"app": APP, "stream": STREAM, "hash": link.hash.hex(), **asdict(link.entry)}).decode()
