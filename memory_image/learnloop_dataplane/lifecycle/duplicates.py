"""Which memories say what another one says already. Pure; no model is asked.

Three shapes make up almost all junk of agents left alone for a month: the same text again, the same text in slightly
other words, and recalled text stored as if it were new.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, NamedTuple, TypeVar
from uuid import UUID

from learnloop_dataplane.text.redundancy import ECHOED, NEAR, SHORTEST_ECHO, edited, reworded, stems, telling
from learnloop_dataplane.text.tokenizer import words

COMPARISONS = 5_000_000  # of one pass: some seconds
Kind = Literal["duplicate", "echo"]
Something = TypeVar("Something")


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


class Effort:
    """What may be spent on comparing. Texts made to collide would otherwise take hours.

    Args:
        rest: called between two memories, for a thread that is not to be in the way.

    Attributes:
        left: memories that were not compared, because by then it did not suffice for them.
    """

    def __init__(self, comparisons: int = COMPARISONS, rest: Callable[[], None] | None = None) -> None:
        self._remaining = comparisons
        self._rest = rest
        self.left: set[UUID] = set()

    def over(self, items: Iterable[Something]) -> Iterator[Something]:
        """The same one after the other, with rests."""
        for item in items:
            if self._rest is not None:
                self._rest()
            yield item

    def suffices(self, comparisons: int, identity: UUID) -> bool:
        """Takes as many, or notes the memory as one that is left out."""
        if comparisons > self._remaining:
            self.left.add(identity)
            return False
        self._remaining -= comparisons
        return True


def duplicates(items: Sequence[Item], effort: Effort | None = None) -> list[Superfluous]:
    """Exact and near duplicates within a type: all but the one with the best standing (the oldest of equals) go.

    Nothing ends in favour of a memory that begins later, ends sooner, is about somebody else or lacks a detail.
    """
    found: list[Superfluous] = []
    effort = effort or Effort()
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
    said = [stems(item.text) for item in effort.over(ordered)]
    kept = _Kept(Counter(chain.from_iterable(said)), Counter(chain.from_iterable(item.details for item in items)))
    for place, (item, its) in enumerate(effort.over(zip(ordered, said, strict=True))):
        if not its:
            continue
        one = _Said(place, item, its, frozenset(its))
        twin = None if item.pinned or item.distilled else kept.twin(one, effort)  # those never go
        if twin is None:
            kept.add(one)
        else:
            found.append(Superfluous(item.id, twin.id, "duplicate"))
    return found


def echoes(
    items: Sequence[Item], recalled: Sequence[Told], within: float = 3600.0, effort: Effort | None = None
) -> list[Superfluous]:
    """Memories that are mostly text recalled within `within` seconds before they were stored, and change none of it.

    One that names nobody is about whom the recalled one is about: stored, it would outlive that person's erasure.
    """
    effort = effort or Effort()
    shown = {told.id: told for told in recalled}
    times: dict[UUID, list[float]] = defaultdict(list)
    for told in sorted(recalled, key=lambda told: told.at):
        times[told.id].append(told.at)
    having: dict[tuple[str, str, str], list[UUID]] = defaultdict(list)
    for told in effort.over(shown.values()):
        for run in dict.fromkeys(_runs(told.text)):
            having[run].append(told.id)
    found = []
    for item in effort.over(items):
        if item.pinned or item.distilled:
            continue
        tokens, runs = words(item.text), _runs(item.text)
        tellers = [having.get(run, []) for run in runs]
        if len(runs) + 2 < SHORTEST_ECHO or not _shown_at_all(tokens, tellers):
            continue
        if not effort.suffices(sum(map(len, tellers)), item.id):
            continue
        counts = Counter(identity for run in runs for identity in having.get(run, ()))
        near = {
            identity
            for identity in counts
            if identity != item.id
            and bisect_right(times[identity], item.created) > bisect_left(times[identity], item.created - within)
            and _covers(shown[identity], item if item.about else replace(item, about=shown[identity].about))
        }
        if not near:
            continue
        # A run is credited to the memory that has most of them, so that one is not taken apart into several.
        sources = [
            max((one for one in having.get(run, ()) if one in near), key=counts.__getitem__, default=None)
            for run in runs
        ]
        covered = Counter(source for source in sources if source is not None)
        if covered.total() >= ECHOED * len(runs) and not edited(tokens, sources):
            found.append(Superfluous(item.id, covered.most_common(1)[0][0], "echo"))
    return found


class _Said(NamedTuple):
    place: int  # in the order in which they are kept
    item: Item
    stems: list[str]
    bag: frozenset[str]


class _Kept:
    """Those that stay, to be found by what is rare about them.

    Of two that say the same, one only adds words to the other, a quarter of its number at most: the rarest word of the
    shorter is among the few rarest of the longer (prefix filtering, Chaudhuri et al., 2006). Words that a template puts
    into every text are never the rarest, and numbers have to be the same to begin with.

    Args:
        words: how many of all memories have a word.
        details: how many of all memories have a detail.
    """

    def __init__(self, words: Counter[str], details: Counter[str]) -> None:
        self._words = words
        self._details = details
        self._shorter: dict[Hashable, list[_Said]] = defaultdict(list)  # by their rarest word
        self._longer: dict[Hashable, list[_Said]] = defaultdict(list)  # by each of their few rarest
        self._detailed: dict[Hashable, list[_Said]] = defaultdict(list)

    def add(self, one: _Said) -> None:
        """From now on it is found."""
        like, rarest = _like(one), self._rarest(one.stems)
        self._shorter[like, rarest[0]].append(one)
        for word in rarest:
            self._longer[like, word].append(one)
        for detail in one.item.details:
            self._detailed[like, detail].append(one)

    def twin(self, one: _Said, effort: Effort) -> Item | None:
        """The first of those kept that says all this one does."""
        like, rarest = _like(one), self._rarest(one.stems)
        near = [self._longer.get((like, rarest[0]), []), *(self._shorter.get((like, word), []) for word in rarest)]
        if one.item.details:
            detail = min(one.item.details, key=lambda detail: (self._details[detail], detail))
            having = self._detailed.get((like, detail), [])
            near = min(near, [having], key=lambda lists: sum(map(len, lists)))
        if not effort.suffices(sum(map(len, near)), one.item.id):
            return None
        firsts = [next((other for other in others if _repeats(one, other)), None) for others in near]
        return min((first for first in firsts if first), key=lambda first: first.place).item if any(firsts) else None

    def _rarest(self, said: Sequence[str]) -> list[str]:
        ordered = sorted(said, key=lambda word: (self._words[word], word))
        return ordered[: len(said) - int(-(-NEAR * len(said) // 1)) + 1]


def _like(one: _Said) -> Hashable:
    """What two that say the same have in common for certain."""
    return one.item.memory_type, one.item.about, tuple(filter(telling, one.stems))


def _repeats(one: _Said, other: _Said) -> bool:
    if not (one.bag <= other.bag or other.bag <= one.bag):  # all but a few end here
        return False
    return other.item.begins <= one.item.begins and _covers(other.item, one.item) and reworded(one.stems, other.stems)


def _covers(one: Item | Told, item: Item) -> bool:
    """Is all that the item says also said there, for as long and about the same person?"""
    return one.ends >= item.ends and one.about == item.about and one.details >= item.details


def _shown_at_all(tokens: Sequence[str], told: Sequence[Sequence[UUID]]) -> bool:
    """Was enough of it shown, and every number in it, by whomever and whenever? Most texts of a template end here."""
    known = {word for place, ids in enumerate(told) if ids for word in tokens[place : place + 3]}
    return sum(map(bool, told)) >= ECHOED * len(told) and all(word in known for word in tokens if telling(word))


def _runs(text: str) -> list[tuple[str, str, str]]:
    tokens = words(text)
    return list(zip(tokens, tokens[1:], tokens[2:], strict=False))
