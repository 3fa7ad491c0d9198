"""The audit chain: its records, how work notes them, the sealer that links them, and pages of them."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal, TextIO
from uuid import UUID

import orjson

from learnloop_dataplane.postgres.database import Database

GENESIS = bytes(32)
Detail = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """The content of one record.

    Attributes:
        seq: place in its namespace's chain, from 1, without a gap.
        at: time by the database's clock.
        actor: the caller's service account, or `system:learnloop` for what the data plane does by itself.
        action: e.g. memory.deleted.
        subject: its object, e.g. agent/walker, user/user:9f3a….
        outcome: done; begun, before something that can be cut short; requested or refused, of a request.
        detail: strings, integers, booleans, and lists and objects of them. No floating point: its text depends on the
            library that writes it.
    """

    namespace: str
    seq: int
    at: datetime
    actor: str
    action: str
    subject: str
    outcome: str
    detail: Detail


@dataclass(frozen=True, slots=True)
class Sealed:
    """An entry with its links."""

    entry: Entry
    previous: bytes
    hash: bytes


def canonical(value: dict[str, Any]) -> bytes:
    """JSON without white space, keys sorted by code point, text as UTF-8, times as RFC 3339 in UTC."""
    times = {name: at(item) if isinstance(item, datetime) else item for name, item in value.items()}
    return orjson.dumps(times, option=orjson.OPT_SORT_KEYS)


def at(time: datetime) -> str:
    """A time as it is hashed: UTC with six digits of a second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def digest(previous: bytes, entry: Entry) -> bytes:
    """SHA-256 of the previous hash (32 bytes) followed by the entry's canonical JSON."""
    return sha256(previous + canonical(asdict(entry))).digest()


def seal(previous: bytes, entry: Entry) -> Sealed:
    """The link that follows `previous`."""
    return Sealed(entry, previous, digest(previous, entry))


SYSTEM = "system:learnloop"
# Set once for each request, where the caller is known (api.common); background work never sets it. Passing it through
# every function instead would put a parameter into thirty signatures that do nothing with it.
actor: ContextVar[str] = ContextVar("actor", default=SYSTEM)

_NOTE = """
INSERT INTO audit_pending (namespace, actor, action, subject, outcome, detail) VALUES ($1, $2, $3, $4, $5, $6)
"""
_NOTES = """
INSERT INTO audit_pending (namespace, actor, action, subject, detail)
SELECT $1, $2, 'memory.stored', * FROM unnest($3::text[], $4::jsonb[])
"""

_LOCK_SUBJECT = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
# A new leader of the operator repeats within an hour what the one before has sent.
_NOTED = """
SELECT 1 FROM audit_pending WHERE namespace = $1 AND subject = $2 AND detail ->> 'id' = $3
UNION ALL
SELECT 1 FROM (SELECT subject, detail FROM audit_log WHERE namespace = $1 ORDER BY seq DESC LIMIT 20000) newest
WHERE subject = $2 AND detail ->> 'id' = $3 LIMIT 1
"""


async def note(
    connection: Any, namespace: str, action: str, subject: str, detail: Detail | None = None, *, outcome: str = "done"
) -> None:
    """Adds one record in the caller's transaction; the sealer gives it its place in the chain.

    Args:
        detail: no floating point; see `Entry`.
    """
    encoded = orjson.dumps(detail or {}).decode()
    await connection.execute(_NOTE, namespace, actor.get(), action, subject[:512], outcome, encoded)


async def note_once(
    connection: Any, namespace: str, action: str, subject: str, detail: Detail, *, identity: str, outcome: str = "done"
) -> bool:
    """Notes what its sender may repeat. False: one of the namespace's newest 20,000 records is about this subject and
    has this `id` in its detail."""
    await connection.execute(_LOCK_SUBJECT, f"{namespace}/{subject}/{identity}")
    if await connection.fetchval(_NOTED, namespace, subject, identity):
        return False
    await note(connection, namespace, action, subject, detail | {"id": identity}, outcome=outcome)
    return True


def digest_of(ids: Sequence[UUID]) -> str:
    """SHA-256 over ids, 16 bytes each, in their order."""
    return sha256(b"".join(identity.bytes for identity in ids)).hexdigest()


async def note_memories(connection: Any, namespace: str, action: str, agent: str, ids: Sequence[UUID]) -> None:
    """One record about any number of memories of one agent: how many, the first, the last, and all by digest."""
    if ids:
        await note(connection, namespace, action, f"agent/{agent}", _named(ids))


async def note_stored(connection: Any, namespace: str, stored: Mapping[str, Sequence[UUID]]) -> None:
    """One record about the stored memories of each agent; of a single memory its id."""
    if stored:
        details = [_named(ids) if len(ids) > 1 else {"id": str(ids[0])} for ids in stored.values()]
        subjects = [f"agent/{agent}" for agent in stored]
        encoded = [orjson.dumps(detail).decode() for detail in details]
        await connection.execute(_NOTES, namespace, actor.get(), subjects, encoded)


def _named(ids: Sequence[UUID]) -> Detail:
    return {"count": len(ids), "first": str(ids[0]), "last": str(ids[-1]), "ids_sha256": digest_of(ids)}


# A page ends here, however few of its records are wanted: no filter reads the whole chain in one page.
LOOKED_AT = 5000
_PAGE = """
SELECT seq, at, actor, action, subject, outcome, detail, encode(previous, 'hex') AS previous,
    encode(hash, 'hex') AS hash
FROM audit_log WHERE namespace = $1 AND seq > $2 AND seq <= $6 AND ($4::text IS NULL OR action = $4)
    AND ($5::text IS NULL OR subject = $5)
ORDER BY seq LIMIT $3
"""
_LAST = _PAGE.replace("ORDER BY seq", "ORDER BY seq DESC")
_END = "SELECT max(seq) FROM audit_log WHERE namespace = $1"


async def page(
    db: Database,
    namespace: str,
    after: int | None,
    limit: int,
    *,
    action: str | None = None,
    subject: str | None = None,
) -> tuple[list[dict[str, Any]], int | None]:
    """Up to `limit` records behind place `after`, hashes as hexadecimal; None: the newest that the filters let pass.

    And the place that the next page begins behind. A page may have fewer, or none, and still be followed by another.
    """
    async with db.tenant(namespace) as connection:
        newest = await connection.fetchval(_END, namespace) or 0
        start = max(0, newest - LOOKED_AT) if after is None else after
        end = start + LOOKED_AT
        rows = await connection.fetch(_LAST if after is None else _PAGE, namespace, start, limit, action, subject, end)
    if after is None:
        rows, end = rows[::-1], newest
    elif len(rows) == limit:
        end = rows[-1]["seq"]
    following = end if len(rows) == limit or end < newest else None
    return [{**row, "detail": orjson.loads(row["detail"])} for row in rows], following


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
_NEWEST_LINK = "SELECT seq, hash FROM audit_log WHERE namespace = $1 ORDER BY seq DESC LIMIT 1"
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
    end = await connection.fetchrow(_NEWEST_LINK, namespace)
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


CHECKED = 1000
Kind = Literal["changed", "missing", "rewritten"]
_LINKS = """
SELECT seq, at, actor, action, subject, outcome, detail, previous, hash FROM audit_log
WHERE namespace = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
_WAITING = "SELECT count(*) FROM audit_pending WHERE namespace = $1"


@dataclass(frozen=True)
class BadRecord:
    """The first bad record."""

    seq: int
    kind: Kind
    message: str


@dataclass
class VerificationReport:
    """The verification of one namespace.

    Attributes:
        records: number read before the first problem, or in all.
        pending: records committed but not yet in the chain.
        head: hash of the last record that was good, hexadecimal.
    """

    namespace: str
    records: int = 0
    pending: int = 0
    head: str = ""
    problem: BadRecord | None = None

    @property
    def ok(self) -> bool:
        return self.problem is None

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


@dataclass
class Chain:
    """The state of a check between two pages."""

    seq: int = 0
    head: bytes = GENESIS

    def check(self, links: Iterable[Sealed]) -> BadRecord | None:
        """Takes the links that follow; the first problem, or None so far."""
        for link in links:
            seq = link.entry.seq
            if seq != self.seq + 1:
                return BadRecord(self.seq + 1, "missing", f"record {self.seq + 1} is missing; the next one is {seq}")
            if digest(link.previous, link.entry) != link.hash:
                return BadRecord(seq, "changed", f"record {seq} is not what was written: its hash differs")
            if link.previous != self.head:
                message = f"record {seq} does not follow record {seq - 1}: that one was replaced"
                return BadRecord(seq, "rewritten", message)
            self.seq, self.head = seq, link.hash
        return None


async def verify(db: Database, namespace: str) -> VerificationReport:
    """Reads one namespace's whole chain, a page at a time; 1,000,000 records take seconds."""
    report, chain = VerificationReport(namespace), Chain()
    async with db.tenant(namespace) as connection:
        report.pending = await connection.fetchval(_WAITING, namespace)
    while report.problem is None:
        async with db.tenant(namespace) as connection:
            rows = await connection.fetch(_LINKS, namespace, chain.seq, CHECKED)
        report.problem = chain.check(_link_of(namespace, row) for row in rows)
        if len(rows) < CHECKED:
            break
    report.records, report.head = chain.seq, chain.head.hex()
    return report


def _link_of(namespace: str, row: Any) -> Sealed:
    values = (row["at"], row["actor"], row["action"], row["subject"], row["outcome"], orjson.loads(row["detail"]))
    return Sealed(Entry(namespace, row["seq"], *values), bytes(row["previous"]), bytes(row["hash"]))
