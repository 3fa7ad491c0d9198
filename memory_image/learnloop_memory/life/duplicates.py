"""Which memories say what another one says already. Pure; no model is asked.

Three shapes make up almost all junk of agents left alone for a month: the same text again, the same text in slightly
other words, and recalled text stored as if it were new.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple
from uuid import UUID

from learnloop_memory.memory.sameness import ECHOED, NEAR, SHORTEST_ECHO, edited, reworded, stems
from learnloop_memory.memory.text import words

Kind = Literal["duplicate", "echo"]


@dataclass(frozen=True)
class Item:
    """One active memory: what comparing needs. `created` orders them; `standing` decides which of two stays.

    Attributes:
        begins, ends: seconds since 1970 between which it is recalled.
        about: the pseudonym of its person, empty for nobody.
        details: what it says beside its text (see `sameness.details`).
    """

    id: UUID
    memory_type: str
    text: str
    created: float
    standing: float
    pinned: bool = False
    distilled: bool = False
    begins: float = 0.0
    ends: float = math.inf
    about: str = ""
    details: frozenset[str] = frozenset()


class Told(NamedTuple):
    """What an agent was shown at an instant (seconds since 1970), of a memory that is recalled until it `ends`."""

    at: float
    id: UUID
    text: str
    ends: float = math.inf
    about: str = ""
    details: frozenset[str] = frozenset()


class Superfluous(NamedTuple):
    """A memory that may go, and the one that says the same."""

    id: UUID
    by: UUID
    kind: Kind


def duplicates(items: Sequence[Item]) -> list[Superfluous]:
    """Exact and near duplicates within a type: all but the one with the best standing (the oldest of equals) go.

    Nothing ends in favour of a memory that begins later, ends sooner, is about somebody else or lacks a detail.
    """
    found: list[Superfluous] = []
    ordered = sorted(
        items,
        key=lambda item: (
            -item.pinned,
            item.begins,
            -item.ends,
            -len(item.details),
            -item.standing,
            item.created,
            item.id.bytes,
        ),
    )
    index: dict[tuple[str, str], list[tuple[Item, list[str]]]] = defaultdict(list)
    for item in ordered:
        said = stems(item.text)
        twin = _twin(item, said, index)
        if twin is not None and not item.pinned and not item.distilled:
            found.append(Superfluous(item.id, twin.id, "duplicate"))
            continue
        for word in _prefix(said):
            index[item.memory_type, word].append((item, said))
    return found


def echoes(items: Sequence[Item], recalled: Sequence[Told], within: float = 3600.0) -> list[Superfluous]:
    """Memories that are mostly text recalled within `within` seconds before they were stored, and change none of it.

    One that names nobody is about whom the recalled one is about: stored, it would outlive that person's erasure.
    """
    shown = {told.id: told for told in recalled}
    times: dict[UUID, list[float]] = defaultdict(list)
    for told in sorted(recalled, key=lambda told: told.at):
        times[told.id].append(told.at)
    having: dict[tuple[str, str, str], list[UUID]] = defaultdict(list)
    for told in shown.values():
        for run in dict.fromkeys(_runs(told.text)):
            having[run].append(told.id)
    found = []
    for item in items:
        tokens, runs = words(item.text), _runs(item.text)
        if item.pinned or item.distilled or len(runs) + 2 < SHORTEST_ECHO:
            continue
        counts = Counter(identity for run in runs for identity in having.get(run, ()))
        near = {
            identity
            for identity in counts
            if identity != item.id
            and _covers(shown[identity], item if item.about else replace(item, about=shown[identity].about))
            and bisect_right(times[identity], item.created) > bisect_left(times[identity], item.created - within)
        }
        # A run is credited to the memory that has most of them, so that one is not taken apart into several.
        sources = [
            max((one for one in having.get(run, ()) if one in near), key=counts.__getitem__, default=None)
            for run in runs
        ]
        covered = Counter(source for source in sources if source is not None)
        if near and covered.total() >= ECHOED * len(runs) and not edited(tokens, sources):
            found.append(Superfluous(item.id, covered.most_common(1)[0][0], "echo"))
    return found


def _twin(item: Item, said: list[str], index: dict[tuple[str, str], list[tuple[Item, list[str]]]]) -> Item | None:
    for word in _prefix(said):
        for other, others in index.get((item.memory_type, word), ()):
            if min(len(said), len(others)) < NEAR * max(len(said), len(others)):
                continue
            if other.begins <= item.begins and _covers(other, item) and reworded(said, others):
                return other
    return None


def _covers(one: Item | Told, item: Item) -> bool:
    """Is all that the item says also said there, for as long and about the same person?"""
    return one.ends >= item.ends and one.about == item.about and one.details >= item.details


def _prefix(said: Sequence[str]) -> list[str]:
    """Two bags that share four fifths share a word among these of each (prefix filtering, Chaudhuri et al., 2006)."""
    ordered = sorted(said, key=lambda word: (-len(word), word))
    return ordered[: len(said) - int(-(-NEAR * len(said) // 1)) + 1]


def _runs(text: str) -> list[tuple[str, str, str]]:
    tokens = words(text)
    return list(zip(tokens, tokens[1:], tokens[2:], strict=False))
