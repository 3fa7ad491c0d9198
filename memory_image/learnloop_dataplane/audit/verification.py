"""Verifies a chain from its first record to its last, and names the first that was changed."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import orjson

from learnloop_dataplane.audit.chain import GENESIS, Entry, Sealed, digest
from learnloop_dataplane.postgres.database import Database

PAGE = 1000
Kind = Literal["changed", "missing", "rewritten"]
_PAGE = """
SELECT seq, at, actor, action, subject, outcome, detail, previous, hash FROM audit_log
WHERE namespace = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
_PENDING = "SELECT count(*) FROM audit_pending WHERE namespace = $1"


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
        """True without a problem."""
        return self.problem is None

    def to_json(self) -> dict[str, Any]:
        """Return the fields and `ok`."""
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
        report.pending = await connection.fetchval(_PENDING, namespace)
    while report.problem is None:
        async with db.tenant(namespace) as connection:
            rows = await connection.fetch(_PAGE, namespace, chain.seq, PAGE)
        report.problem = chain.check(_sealed(namespace, row) for row in rows)
        if len(rows) < PAGE:
            break
    report.records, report.head = chain.seq, chain.head.hex()
    return report


def _sealed(namespace: str, row: Any) -> Sealed:
    values = (row["at"], row["actor"], row["action"], row["subject"], row["outcome"], orjson.loads(row["detail"]))
    return Sealed(Entry(namespace, row["seq"], *values), bytes(row["previous"]), bytes(row["hash"]))
