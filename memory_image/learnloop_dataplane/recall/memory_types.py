"""The four kinds of memory, and what is different about each.

Episodic: what happened; many, soon stale. Semantic: what is true; stays until contradicted. Procedural: how something
is done; worth what it earns. Working: what is going on right now; gone by itself.
"""

from dataclasses import dataclass
from typing import Literal, get_args

MemoryType = Literal["episodic", "semantic", "procedural", "working"]
ALL_TYPES: tuple[MemoryType, ...] = get_args(MemoryType)
CODES: dict[str, int] = {"episodic": 1, "semantic": 2, "procedural": 3, "working": 4}


@dataclass(frozen=True)
class TypePolicy:
    """How memories of one type live.

    Attributes:
        half_life_days: after this many days half of a memory's freshness is gone when it is decided what to forget.
        ttl_seconds: how long a memory lives when its writer does not say; None: without an end.
        consolidates: are near-duplicates merged, and are these distilled into others?
    """

    half_life_days: float
    ttl_seconds: int | None
    consolidates: bool


POLICIES: dict[MemoryType, TypePolicy] = {
    "episodic": TypePolicy(half_life_days=7.0, ttl_seconds=None, consolidates=True),
    "semantic": TypePolicy(half_life_days=90.0, ttl_seconds=None, consolidates=True),
    "procedural": TypePolicy(half_life_days=180.0, ttl_seconds=None, consolidates=True),
    "working": TypePolicy(half_life_days=1 / 24, ttl_seconds=3600, consolidates=False),
}
