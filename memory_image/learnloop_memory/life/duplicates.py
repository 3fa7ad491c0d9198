"""Which memories say what another one says already. Pure; no model is asked.

Three shapes make up almost all junk of agents left alone for a month: the same text again, the same text in slightly
other words, and recalled text stored as if it were new.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from learnloop_memory.memory.text import words

Kind = Literal["duplicate", "echo"]
NEAR = 0.8  # of their words, two memories share
ECHOED = 0.8  # of its three-word runs, a memory took from what was recalled just before
SHORTEST_ECHO = 6
_TELLING = re.compile(r"\d|^(not|no|never|none|without|nor|cannot|cant|dont|wont|isnt|doesnt|didnt)$")
_FILLERS = frozenset(
    "a an and as at be been by for from in is it its of on or our so that the there this to was we with".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Item:
    """One active memory: what comparing needs. `created` orders them; `standing` decides which of two stays."""

    id: UUID
    memory_type: str
    text: str
    created: float
    standing: float
    pinned: bool = False
    distilled: bool = False


@dataclass(frozen=True)
class Superfluous:
    """A memory that may go, and the one that says the same."""

    id: UUID
    by: UUID
    kind: Kind


def duplicates(items: Sequence[Item]) -> list[Superfluous]:
    """Exact and near duplicates within a type: all but the one with the best standing (the oldest of equals) go.

    Near: they share four fifths of their words, and what differs is neither a number nor a negation: "gate 4" and
    "gate 5" are two memories, and so are "is open" and "is not open".
    """
    found: list[Superfluous] = []
    gone: set[UUID] = set()
    ordered = sorted(items, key=lambda item: (-item.pinned, -item.standing, item.created, item.id.bytes))
    index: dict[tuple[str, str], list[tuple[Item, frozenset[str]]]] = defaultdict(list)
    for item in ordered:
        bag = frozenset(word for word in words(item.text) if word not in _FILLERS) or frozenset(words(item.text))
        twin = _twin(item, bag, index)
        if twin is not None and not item.pinned and not item.distilled:
            found.append(Superfluous(item.id, twin.id, "duplicate"))
            gone.add(item.id)
            continue
        for word in _prefix(bag):
            index[item.memory_type, word].append((item, bag))
    return found


def echoes(
    items: Sequence[Item], recalled: Sequence[tuple[float, UUID, str]], within: float = 3600.0
) -> list[Superfluous]:
    """Memories that are mostly text recalled within the hour before they were stored.

    Args:
        recalled: (seconds since 1970, id, text) of what the agent was shown.
        within: seconds.
    """
    shown = [(at, identity, _runs(text)) for at, identity, text in recalled]
    found = []
    for item in items:
        runs = _runs(item.text)
        if item.pinned or item.distilled or len(runs) + 2 < SHORTEST_ECHO:
            continue
        sources = [entry for entry in shown if 0 <= item.created - entry[0] <= within and entry[1] != item.id]
        best = max(sources, key=lambda entry: len(runs & entry[2]), default=None)
        covered = runs & frozenset().union(*(entry[2] for entry in sources)) if sources else frozenset()
        if best is not None and len(covered) >= ECHOED * len(runs) and best[2]:
            found.append(Superfluous(item.id, best[1], "echo"))
    return found


def _twin(
    item: Item, bag: frozenset[str], index: dict[tuple[str, str], list[tuple[Item, frozenset[str]]]]
) -> Item | None:
    for word in _prefix(bag):
        for other, others in index.get((item.memory_type, word), ()):
            if min(len(bag), len(others)) < NEAR * max(len(bag), len(others)):
                continue
            union = len(bag | others)
            if union and len(bag & others) >= NEAR * union and not any(map(_TELLING.search, bag ^ others)):
                return other
    return None


def _prefix(bag: frozenset[str]) -> list[str]:
    """Two bags that share four fifths share a word among these of each (prefix filtering, Chaudhuri et al., 2006)."""
    ordered = sorted(bag, key=lambda word: (-len(word), word))
    return ordered[: len(bag) - int(-(-NEAR * len(bag) // 1)) + 1]


def _runs(text: str) -> frozenset[tuple[str, str, str]]:
    tokens = words(text)
    return frozenset(zip(tokens, tokens[1:], tokens[2:], strict=False))
