"""Which memories say what another one says already. Pure; no model is asked.

Two shapes make up almost all junk of agents left alone for a month: the same text again, and recalled text stored as
if it were new.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar
from uuid import UUID

from learnloop_dataplane.text.redundancy import Shown, print_of, said

COMPARISONS = 5_000_000  # of one pass: some seconds
Kind = Literal["duplicate", "echo"]
Something = TypeVar("Something")


@dataclass(frozen=True)
class Item:
    """One active memory: what comparing needs. `created` orders them; `standing` decides which of two stays.

    Attributes:
        begins, ends: seconds since 1970 between which it is recalled.
        about: the pseudonym of its person, empty for nobody.
        details: what it says beside its text (see `redundancy.details`).
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
    """Texts of a type that say the same: all but the one with the best standing (the oldest of equals) go.

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
    details = Counter(detail for item in items for detail in item.details)
    staying: dict[Hashable, list[Item]] = defaultdict(list)  # by what is the same of both, and by each detail
    for item in effort.over(ordered):
        words = said(item.text)
        if not words:
            continue
        like = (item.memory_type, item.about, words)
        rarest = min(item.details, key=lambda detail: (details[detail], detail), default=None)
        alike, twin = staying[like, rarest], None
        if not item.pinned and not item.distilled and effort.suffices(len(alike), item.id):  # those never go
            twin = next((one for one in alike if one.begins <= item.begins and _covers(one, item)), None)
        if twin is not None:
            found.append(Superfluous(item.id, twin.id, "duplicate"))
            continue
        for detail in (None, *item.details):
            staying[like, detail].append(item)
    return found


def echoes(
    items: Sequence[Item], recalled: Sequence[Told], within: float = 3600.0, effort: Effort | None = None
) -> list[Superfluous]:
    """Memories that consist of texts recalled within `within` seconds before they were stored.

    One that names nobody is about whom the recalled one is about: stored, it would outlive that person's erasure.
    """
    effort = effort or Effort()
    texts = {told.id: told for told in recalled}
    times: dict[UUID, list[float]] = defaultdict(list)
    for told in sorted(recalled, key=lambda told: told.at):
        times[told.id].append(told.at)
    shown = Shown((told.id, print_of(said(told.text))) for told in effort.over(texts.values()))
    found = []
    for item in effort.over(items):
        if item.pinned or item.distilled:
            continue

        def usable(keys: list[UUID], item: Item = item) -> UUID | None:
            if not effort.suffices(len(keys), item.id):
                return None
            return next((key for key in keys if key != item.id and recently(key, item)), None)

        def recently(key: UUID, item: Item) -> bool:
            at = times[key]
            lately = bisect_right(at, item.created) > bisect_left(at, item.created - within)
            return lately and _covers(texts[key], item if item.about else replace(item, about=texts[key].about))

        if sources := shown.sources(said(item.text), usable):
            found.append(Superfluous(item.id, sources[0], "echo"))
    return found


def _covers(one: Item | Told, item: Item) -> bool:
    """Is all that the item says also said there, for as long and about the same person?"""
    return one.ends >= item.ends and one.about == item.about and one.details >= item.details
