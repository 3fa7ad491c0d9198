"""Puts what is pending into the chain, one process at a time for each namespace, and signs the end of it."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

import orjson

from learnloop_dataplane.audit.chain import GENESIS, Detail, Entry, Sealed, canonical, seal
from learnloop_dataplane.audit.signing import Checkpoint, Signer, keep
from learnloop_dataplane.blobs.blob_store import BlobStore
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


@dataclass(frozen=True)
class Said:
    """A record without its place."""

    at: datetime
    actor: str
    action: str
    subject: str
    outcome: str
    detail: Detail


class Sealer:
    """Orders, links and signs.

    Args:
        signer: None: the chain is linked but never signed, so only a kept hash would show that its end is missing.
        every: seconds between two checkpoints of a chain that grows; a thousand records need none to wait for.
        copy: is told records once they are in the chain, in a thread; None: nobody is.
    """

    def __init__(
        self,
        db: Database,
        blobs: BlobStore,
        signer: Signer | None,
        *,
        every: float = 60.0,
        copy: Callable[[Sequence[Sealed]], None] | None = None,
    ) -> None:
        self._db = db
        self._blobs = blobs
        self._signer = signer
        self._every = timedelta(seconds=every)
        self._copy = copy
        self._signed: set[str] = set()  # namespaces with nothing to sign since this process looked

    async def run(self, namespace: str) -> int:
        """Seals everything pending in one namespace, signs when it is time, and returns how many records that were.

        Raises:
            Unavailable: the rest stays pending.
        """
        done = 0
        [(pending,)] = await self._db.fetch_as(namespace, _PENDING)
        if pending:
            while True:
                async with self._db.tenant(namespace) as connection:
                    sealed = await seal_pending(connection, namespace)
                await self._copied(sealed)
                done += len(sealed)
                if len(sealed) < BATCH:
                    break
        if self._signer is not None and (done or namespace not in self._signed):
            await self._sign_when_due(namespace, self._signer)
        return done

    async def append(self, namespace: str, action: str, subject: str, actor: str, detail: Detail) -> Sealed:
        """Seals what is pending and then this record, in one transaction, and signs.

        Raises:
            Unavailable: it is not in the chain.
        """
        before: list[Sealed] = []
        async with self._db.tenant(namespace) as connection:
            while len(waiting := await seal_pending(connection, namespace)) == BATCH:
                before += waiting
            said = Said(datetime.now(UTC), actor, action, subject, "done", detail)
            [sealed] = await _link(connection, namespace, [said])
            checkpoint = None
            if self._signer is not None:
                checkpoint = await self._sign(connection, namespace, self._signer, sealed.entry.seq, sealed.hash)
        await self._copied([*before, *waiting, sealed])
        if checkpoint is not None:
            await keep(self._db, self._blobs, checkpoint)
        return sealed

    async def _copied(self, sealed: Sequence[Sealed]) -> None:
        if self._copy is not None and sealed:
            await asyncio.to_thread(self._copy, sealed)  # a pipe that nobody empties stops this thread, and no request

    async def _sign_when_due(self, namespace: str, signer: Signer) -> None:
        self._signed.discard(namespace)
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_LOCK, namespace)
            end = await connection.fetchrow(_END, namespace)
            newest = await connection.fetchrow(_SIGNED, namespace)
            grown = (end["seq"] if end else 0) - (newest["seq"] if newest else 0)
            checkpoint = None
            if newest is None or grown >= RECORDS_PER_CHECKPOINT or datetime.now(UTC) - newest["at"] >= self._every:
                checkpoint = await self._sign(connection, namespace, signer, end["seq"], end["hash"]) if grown else None
        if checkpoint is not None:
            await keep(self._db, self._blobs, checkpoint)
        if grown == 0 or checkpoint is not None:
            self._signed.add(namespace)

    async def _sign(self, connection: Any, namespace: str, signer: Signer, seq: int, hash: bytes) -> Checkpoint | None:
        newest = await connection.fetchrow(_SIGNED, namespace)
        if newest is not None and newest["seq"] >= seq:
            return None
        made = Checkpoint.signed(signer, namespace, seq, datetime.now(UTC), bytes(hash))
        await connection.execute(_SIGN, namespace, seq, made.at, made.hash, made.public_key, made.signature)
        return made


async def seal_pending(connection: Any, namespace: str) -> list[Sealed]:
    """Moves up to a thousand pending records into the chain, within the caller's transaction."""
    await connection.execute(_LOCK, namespace)
    rows = sorted(await connection.fetch(_TAKE, namespace, BATCH), key=lambda row: int(row["id"]))
    said = [Said(r["at"], r["actor"], r["action"], r["subject"], r["outcome"], orjson.loads(r["detail"])) for r in rows]
    return await _link(connection, namespace, said)


async def _link(connection: Any, namespace: str, said: list[Said]) -> list[Sealed]:
    if not said:
        return []
    end = await connection.fetchrow(_END, namespace)
    seq, previous = (end["seq"], bytes(end["hash"])) if end else (0, GENESIS)
    links: list[Sealed] = []
    for number, item in enumerate(said, seq + 1):
        fields = (item.at, item.actor, item.action, item.subject, item.outcome, item.detail)
        links.append(seal(previous, Entry(namespace, number, *fields)))
        previous = links[-1].hash
    columns = zip(*(_columns(link) for link in links), strict=True)
    await connection.execute(_APPEND, namespace, *(list(column) for column in columns))
    return links


def _columns(link: Sealed) -> tuple[Any, ...]:
    entry = link.entry
    said = (entry.seq, entry.at, entry.actor, entry.action, entry.subject, entry.outcome)
    return (*said, orjson.dumps(entry.detail).decode(), link.previous, link.hash)


APP, STREAM = "learnloop-data", "audit"


def lines(sealed: Sequence[Sealed]) -> str:
    """The lines, each with its line break."""
    return "".join(f"{_line(link)}\n" for link in sealed)


def write(sealed: Sequence[Sealed], stream: TextIO | None = None) -> None:
    """Whole lines, at once. What cannot be written is lost here, and in the chain all the same."""
    where = sys.stdout if stream is None else stream
    try:
        where.write(lines(sealed))
        where.flush()
    except (OSError, ValueError):  # nobody reads, or it is closed
        return


def _line(link: Sealed) -> str:
    told = {"app": APP, "stream": STREAM, "hash": link.hash.hex(), **asdict(link.entry)}
    return canonical(told).decode()
