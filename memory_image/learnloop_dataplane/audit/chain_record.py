"""One record of the chain, and its hash. Pure."""

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import orjson

GENESIS = bytes(32)
Detail = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """What is said in one record.

    Attributes:
        seq: place in its namespace's chain, from 1, without a gap.
        at: when it happened, by the database's clock.
        actor: the caller's service account, or `system:learnloop` for what the data plane does by itself.
        action: e.g. memory.deleted.
        subject: what it was done to, e.g. agent/walker, user/user:9f3a….
        outcome: done; of what can be cut short begun, before it; of a request asked or refused.
        detail: strings, integers, booleans, and lists and objects of them. No floating point: its text depends on
            who writes it, and a hash must not.
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


def written_as(sealed: Sealed, last: int) -> int | None:
    """The place this record was really written at, when it is whole but out of its place; None: it was changed."""
    for seq in range(1, last + 1):
        if digest(sealed.previous, replace(sealed.entry, seq=seq)) == sealed.hash:
            return seq
    return None
