"""Verifies a chain from its first record to its last, and names the first that was changed."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import orjson

from learnloop_dataplane.audit.chain import GENESIS, Entry, Sealed, digest
from learnloop_dataplane.audit.signing import Checkpoint
from learnloop_dataplane.postgres.database import Database

PAGE = 1000
Kind = Literal["changed", "missing", "rewritten", "truncated", "checkpoint"]
_PAGE = """
SELECT seq, at, actor, action, subject, outcome, detail, previous, hash FROM audit_log
WHERE namespace = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
_CHECKPOINTS = """
SELECT namespace, seq, at, hash, public_key, signature FROM audit_checkpoints WHERE namespace = $1 ORDER BY seq"""
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
        signed_up_to: newest place with a trusted signature; 0: none.
        pending: records committed but not yet in the chain.
        head: hash of the last record that was good, hexadecimal.
    """

    namespace: str
    records: int = 0
    checkpoints: int = 0
    signed_up_to: int = 0
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
    """The state of a check between two pages.

    Args:
        checkpoints: valid ones, by place.
    """

    checkpoints: dict[int, Checkpoint]
    seq: int = 0
    head: bytes = GENESIS
    vouched: int = field(default=0)

    def check(self, links: Iterable[Sealed]) -> BadRecord | None:
        """Takes the links that follow; the first problem, or None so far."""
        for link in links:
            seq = link.entry.seq
            if seq != self.seq + 1:
                return BadRecord(self.seq + 1, "missing", f"record {self.seq + 1} is missing; the next one is {seq}")
            if link.previous != self.head or digest(link.previous, link.entry) != link.hash:
                return self._broken(link)
            signed = self.checkpoints.get(seq)
            if signed is not None and signed.hash != link.hash:
                return BadRecord(
                    self.vouched + 1,
                    "rewritten",
                    f"records {self.vouched + 1} to {seq} do not fit the signature over the last: one was replaced",
                )
            self.seq, self.head = seq, link.hash
            self.vouched = seq if signed is not None else self.vouched
        return None

    def end(self) -> BadRecord | None:
        """The problem at the end of the chain, if any."""
        signed = max(self.checkpoints, default=0)
        if signed > self.seq:
            message = f"records {self.seq + 1} to {signed} are missing at the end: record {signed} was signed once"
            return BadRecord(self.seq + 1, "truncated", message)
        return None

    def _broken(self, link: Sealed) -> BadRecord:
        seq = link.entry.seq
        if digest(link.previous, link.entry) == link.hash:
            return BadRecord(seq, "rewritten", f"record {seq} does not follow record {seq - 1}: that one was replaced")
        return BadRecord(seq, "changed", f"record {seq} is not what was written: its hash differs")


async def verify(
    db: Database, namespace: str, *, trusted: Iterable[bytes] = (), kept: Iterable[Checkpoint] = ()
) -> VerificationReport:
    """Reads one namespace's whole chain, a page at a time; 1,000,000 records take seconds.

    Args:
        trusted: public keys whose signatures count. Empty: every valid signature counts, which shows accidents, but not
            an attacker who writes both tables and signs with another key.
        kept: checkpoints that an auditor keeps elsewhere. Only they show that a chain lost its end with its signatures.

    Raises:
        Unavailable: the database does not answer.
    """
    report = VerificationReport(namespace)
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(_CHECKPOINTS, namespace)
        report.pending = await connection.fetchval(_PENDING, namespace)
    signed, report.problem = _checked([*map(_checkpoint, rows), *kept], namespace, set(trusted))
    chain = Chain(signed)
    report.checkpoints = len(signed)
    while report.problem is None:
        async with db.tenant(namespace) as connection:
            rows = await connection.fetch(_PAGE, namespace, chain.seq, PAGE)
        report.problem = chain.check(_sealed(namespace, row) for row in rows)
        if len(rows) < PAGE:
            report.problem = report.problem or chain.end()
            break
    report.records, report.signed_up_to, report.head = chain.seq, chain.vouched, chain.head.hex()
    return report


def _checked(
    checkpoints: list[Checkpoint], namespace: str, keys: set[bytes]
) -> tuple[dict[int, Checkpoint], BadRecord | None]:
    """The checkpoints by place, up to the first invalid one."""
    valid: dict[int, Checkpoint] = {}
    for item in sorted(checkpoints, key=lambda item: item.seq):
        if item.namespace != namespace or not item.holds() or (keys and item.public_key not in keys):
            message = f"the signature over record {item.seq} is not by a trusted key, or not over this"
            return valid, BadRecord(item.seq, "checkpoint", message)
        if item.seq in valid and valid[item.seq].hash != item.hash:
            message = f"two signatures over record {item.seq} vouch for different records"
            return valid, BadRecord(item.seq, "checkpoint", message)
        valid[item.seq] = item
    return valid, None


async def newest_checkpoint(db: Database, namespace: str) -> Checkpoint | None:
    """The newest signature over the chain; None where nothing is signed. Raises Unavailable."""
    async with db.tenant(namespace) as connection:
        row = await connection.fetchrow(f"{_CHECKPOINTS} DESC LIMIT 1", namespace)
    return _checkpoint(row) if row else None


def _checkpoint(row: Any) -> Checkpoint:
    raw = (bytes(row[name]) for name in ("hash", "public_key", "signature"))
    return Checkpoint(row["namespace"], row["seq"], row["at"], *raw)


def _sealed(namespace: str, row: Any) -> Sealed:
    values = (row["at"], row["actor"], row["action"], row["subject"], row["outcome"], orjson.loads(row["detail"]))
    return Sealed(Entry(namespace, row["seq"], *values), bytes(row["previous"]), bytes(row["hash"]))
