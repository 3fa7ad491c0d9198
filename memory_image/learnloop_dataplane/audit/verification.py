"""Checks a chain from its first record to its last and names the first that is not what it was."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import orjson

from learnloop_dataplane.audit.chain import GENESIS, Entry, Sealed, digest, written_as
from learnloop_dataplane.audit.signing import Checkpoint, newest_checkpoint
from learnloop_dataplane.blobs.blob_store import BlobStore
from learnloop_dataplane.postgres.database import Database

PAGE = 1000
Kind = Literal["changed", "missing", "reordered", "rewritten", "truncated", "checkpoint"]
_PAGE = """
SELECT seq, at, actor, action, subject, outcome, detail, previous, hash FROM audit_log
WHERE namespace = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
_CHECKPOINTS = """
SELECT namespace, seq, at, hash, public_key, signature FROM audit_checkpoints WHERE namespace = $1 ORDER BY seq
"""
_LAST = "SELECT coalesce(max(seq), 0) FROM audit_log WHERE namespace = $1"
_PENDING = "SELECT count(*) FROM audit_pending WHERE namespace = $1"


@dataclass(frozen=True)
class BadRecord:
    """The first bad record: where, what kind of bad, and a sentence."""

    seq: int
    kind: Kind
    message: str


@dataclass
class VerificationReport:
    """What a check of one namespace found.

    Attributes:
        records: how many were read before the first problem, or in all.
        signed_up_to: newest place that a trusted signature vouches for; 0: none does.
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
        """Nothing was found."""
        return self.problem is None

    def to_json(self) -> dict[str, Any]:
        """As it is printed and answered."""
        return {"ok": self.ok, **asdict(self)}


@dataclass
class Chain:
    """The state of a check between two pages.

    Args:
        last: the highest place there is.
        checkpoints: signed ones that hold, by place.
    """

    last: int
    checkpoints: dict[int, Checkpoint]
    seq: int = 0
    head: bytes = GENESIS
    vouched: int = field(default=0)

    def check(self, links: Iterable[Sealed]) -> BadRecord | None:
        """Takes the links that follow; the first problem, or None so far."""
        for link in links:
            seq = link.entry.seq
            if seq != self.seq + 1:
                return BadRecord(
                    self.seq + 1, "missing", f"record {self.seq + 1} is missing; the next there is is {seq}"
                )
            if link.previous != self.head or digest(link.previous, link.entry) != link.hash:
                return self._broken(link)
            signed = self.checkpoints.get(seq)
            if signed is not None and signed.hash != link.hash:
                return BadRecord(
                    self.vouched + 1,
                    "rewritten",
                    f"records {self.vouched + 1} to {seq} fit one another but not the signature over record {seq}: at "
                    "least one of them was written anew",
                )
            self.seq, self.head = seq, link.hash
            self.vouched = seq if signed is not None else self.vouched
        return None

    def end(self) -> BadRecord | None:
        """What is wrong with how the chain ends."""
        signed = max(self.checkpoints, default=0)
        if signed > self.seq:
            message = f"records {self.seq + 1} to {signed} are missing at the end: record {signed} was signed once"
            return BadRecord(self.seq + 1, "truncated", message)
        return None

    def _broken(self, link: Sealed) -> BadRecord:
        seq = link.entry.seq
        place = written_as(link, self.last)
        if place is not None and place != seq:
            return BadRecord(seq, "reordered", f"record {seq} was written as record {place}: records changed places")
        if place == seq:
            # Whole in itself, so it is what stood before it that is no longer there.
            return BadRecord(
                seq, "rewritten", f"record {seq} does not follow record {seq - 1}: that one was written anew"
            )
        return BadRecord(seq, "changed", f"record {seq} is not what was written: its hash is another one")


async def verify(
    db: Database,
    blobs: BlobStore,
    namespace: str,
    *,
    trusted: Iterable[bytes] = (),
    kept: Iterable[Checkpoint] = (),
) -> VerificationReport:
    """Reads one namespace's whole chain, a page at a time; 1,000,000 records take seconds.

    Args:
        trusted: public keys whose signatures count. None given: any whose signature holds, which shows accidents but
            not someone who can write both tables and signs with a key of his own.
        kept: checkpoints that an auditor kept elsewhere.

    Raises:
        Unavailable: nothing is known.
    """
    keys = set(trusted)
    report = VerificationReport(namespace)
    signed, report.problem = await _checkpoints(db, blobs, namespace, keys, kept)
    async with db.tenant(namespace) as connection:
        last = await connection.fetchval(_LAST, namespace)
        report.pending = await connection.fetchval(_PENDING, namespace)
    chain = Chain(last, signed)
    report.checkpoints = len(signed)
    while report.problem is None and chain.seq < last:
        async with db.tenant(namespace) as connection:
            rows = await connection.fetch(_PAGE, namespace, chain.seq, PAGE)
        if not rows:
            break
        report.problem = chain.check(_sealed(namespace, row) for row in rows)
    report.problem = report.problem or chain.end()
    report.records, report.signed_up_to, report.head = chain.seq, chain.vouched, chain.head.hex()
    return report


async def _checkpoints(
    db: Database, blobs: BlobStore, namespace: str, keys: set[bytes], kept: Iterable[Checkpoint]
) -> tuple[dict[int, Checkpoint], BadRecord | None]:
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(_CHECKPOINTS, namespace)
    found = [_checkpoint(row) for row in rows] + list(kept)
    try:
        outside = await newest_checkpoint(blobs, namespace)
    except ValueError as error:
        return {}, BadRecord(0, "checkpoint", f"the checkpoint beside the artifacts cannot be read: {error}")
    if outside is not None:
        found.append(outside)
    good: dict[int, Checkpoint] = {}
    for item in sorted(found, key=lambda item: item.seq):
        if item.namespace != namespace or not item.holds() or (keys and item.public_key not in keys):
            message = f"the signature over record {item.seq} is not by a trusted key, or not over this"
            return good, BadRecord(item.seq, "checkpoint", message)
        if item.seq in good and good[item.seq].hash != item.hash:
            message = f"two signatures over record {item.seq} vouch for different records"
            return good, BadRecord(item.seq, "checkpoint", message)
        good[item.seq] = item
    return good, None


def _checkpoint(row: Any) -> Checkpoint:
    raw = (bytes(row[name]) for name in ("hash", "public_key", "signature"))
    return Checkpoint(row["namespace"], row["seq"], row["at"], *raw)


def _sealed(namespace: str, row: Any) -> Sealed:
    said = (row["at"], row["actor"], row["action"], row["subject"], row["outcome"], orjson.loads(row["detail"]))
    return Sealed(Entry(namespace, row["seq"], *said), bytes(row["previous"]), bytes(row["hash"]))
