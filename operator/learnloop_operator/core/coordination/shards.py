"""Which of several operators looks after a namespace: rendezvous hashing (Thaler and Ravishankar, 1998).

Where there is one shard more, only its own namespaces move, a share of 1/count; nothing else changes hands.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

MOST = 16


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count`, by its number from 0."""

    index: int = 0
    count: int = 1

    def owns(self, namespace: str) -> bool:
        """This shard looks after the namespace."""
        return shard_of(namespace, self.count) == self.index

    def lease(self, name: str) -> str:
        """Its leader Lease, where the installation's is `name`; the first has that one, so that one alone has it."""
        return f"{name}-{self.index}" if self.index else name


WHOLE = Shard()
"""One operator looks after everything."""


@lru_cache(maxsize=100_000)
def shard_of(namespace: str, count: int) -> int:
    """The shard with the greatest digest of its number and the namespace's name."""
    if count == 1:
        return 0
    return max(range(count), key=lambda index: hashlib.sha256(f"{index}/{namespace}".encode()).digest())


def read(text: str) -> Shard:
    """`1/3`: the second of three; "" is one alone.

    Raises:
        ValueError: names the value and the fix.
    """
    if not text:
        return WHOLE
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count) <= MOST):
        raise ValueError(
            f"{text[:50]!r} is no shard: set its number from 0 and how many there are (≤ {MOST}), as in 1/3"
        )
    return Shard(int(index), int(count))
