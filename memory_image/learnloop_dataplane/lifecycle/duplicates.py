"""Memories that say what another one says already: the same text again, or recalled text stored as if it were new.

The rule errs towards keeping: junk costs little, but a correction mistaken for a repetition costs the truth. A word
that two texts do not share may be a negation in any language. An article, a comma or an end of a sentence may turn the
meaning ("few", "a few"; "no, it is open", "no it is open"), and brackets make a number negative. So they say the same
only word for word. "The" alone says nothing: it is a word of English, and makes no sentence another one's opposite.
"""

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple
from uuid import UUID

from learnloop_dataplane.stems import ENDS, normalised

Kind = Literal["duplicate", "echo"]
SHORTEST_ECHO = 6  # words; shorter texts repeat by chance
ECHO_SECONDS = 3600.0  # between a recall and the storing of its echo
MOST_ALIKE = 50  # recalled texts of the same words that an echo is compared with
# Phrases that may stand before recalled text; of these only "as noted" behind it.
_FRAME = re.compile(
    r"(?:what i (?:know|remember) is(?: that)?|as far as i (?:know|remember|recall)|as noted|noted|remembered"
    r"|i (?:know|remember|recall)(?: that)?|and)[,:.;]? (?=.)"
)


@dataclass(frozen=True)
class Item:
    """An active memory. `standing` decides which of two duplicates stays; `about` is a person's pseudonym, or empty.

    Attributes:
        fixed: pinned, or distilled: stays, even where another one says the same.
        states: an instruction, preference or withdrawal: whether it holds depends on what was stated last.
        place: when it was said first, and its position in the session.
        begins, ends: seconds since 1970 between which it is recalled.
        details: its other fields (see `details`).
    """

    id: UUID
    memory_type: str
    text: str
    created: float
    standing: float
    fixed: bool = False
    states: bool = False
    place: tuple[float, int] = (0.0, 0)
    begins: float = 0.0
    ends: float = math.inf
    about: str = ""
    speaker: str = ""
    details: frozenset[str] = frozenset()


class RecalledMemory(NamedTuple):
    """A memory that was recalled at these times, in rising order, and is recalled until it `ends`."""

    times: Sequence[float]
    id: UUID
    text: str
    ends: float = math.inf
    about: str = ""
    details: frozenset[str] = frozenset()

    def covers(self, item: Item) -> bool:
        """Whether all of the item is said here, for as long, about the same person, and was recalled just before.

        An item about no person counts as about this one's: stored, it would outlive that person's erasure.
        """
        since = bisect_left(self.times, item.created - ECHO_SECONDS)
        lately = since < len(self.times) and self.times[since] <= item.created
        same = self.id != item.id and item.about in ("", self.about) and self.details >= item.details
        return lately and same and self.ends >= item.ends


class Superfluous(NamedTuple):
    """A memory that may go, and the one that says the same."""

    id: UUID
    by: UUID
    kind: Kind


class Comparison:
    """Reads memories page by page; keeps no text of them, so 20,000 take some ten megabytes."""

    def __init__(self, recalled: Iterable[RecalledMemory]) -> None:
        self._echoes: list[Superfluous] = []
        self._alike: dict[int, list[Item]] = defaultdict(list)
        self._texts: dict[str, list[RecalledMemory]] = defaultdict(list)
        for each in recalled:
            text = normalised(each.text)
            if text.count(" ") + 1 >= SHORTEST_ECHO and len(self._texts[text]) < MOST_ALIKE:
                self._texts[text].append(each)

    def read(self, items: Iterable[Item]) -> None:
        """Takes in more memories."""
        for item in items:
            text = normalised(item.text)
            source = None if item.fixed else self._source(text, item)
            if source is not None:
                self._echoes.append(Superfluous(item.id, source, "echo"))
            elif text:
                key = hash((item.memory_type, item.about, item.speaker, text, item.details))
                self._alike[key].append(replace(item, text="", details=frozenset()))

    def junk(self) -> list[Superfluous]:
        """Echoes, and all duplicates but the one with the best standing, the oldest of equals.

        Of statements that say how to act the newest stays: it may come after a withdrawal of the first.
        Duplicates have the same fields besides the text. None ends in favour of a memory that begins later or ends
        sooner, and none in favour of an echo.
        """
        junk = list(self._echoes)
        for alike in self._alike.values():
            lasting: Item | None = None
            for item in sorted(alike, key=_order):
                if lasting is None or lasting.ends < item.ends:
                    lasting = item
                elif not item.fixed:
                    junk.append(Superfluous(item.id, lasting.id, "duplicate"))
        return junk

    def _source(self, text: str, item: Item) -> UUID | None:
        """The recalled memory that this text repeats; None where it says anything else."""
        unframed = _unframed(text)
        if item.states and unframed == text:  # said again by itself, it holds again
            return None
        alike = self._texts.get(unframed, ())
        return next((each.id for each in alike if each.covers(item)), None)


def _unframed(text: str) -> str:
    """Without the phrases by which people begin and end a repetition."""
    frame = _FRAME.match(text)
    return text[frame.end() if frame else 0 :].removesuffix(" as noted").rstrip(f"{ENDS} ")


def _order(item: Item) -> tuple[Any, ...]:
    newest = (-item.place[0], -item.place[1], -item.id.int) if item.states else ()
    return item.begins, -item.ends, newest, not item.fixed, -item.standing, item.created, item.id.bytes
