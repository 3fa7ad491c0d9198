"""One agent's memories beside one another and beside what it was shown: which of them may go. Pure.

They come as pages of rows, JSON arrays in bytes: what a page says lies in one piece until it is looked at, and goes to
another process as it is.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from learnloop_dataplane.lifecycle.duplicates import Effort, Item, Superfluous, Told, duplicates, echoes
from learnloop_dataplane.recall.memory_types import POLICIES
from learnloop_dataplane.text.redundancy import details

# The columns of a row, in the order in which a page has them.
HELD = (
    "id",
    "memory_type",
    "text",
    "content",
    "importance",
    "pinned",
    "source",
    "origin",
    "created",
    "earned",
    "begins",
    "ends",
    "about",
)
SHOWN = ("id", "text", "content", "times", "ends", "about")


class Compared(NamedTuple):
    """What may go, and how many of the rest were not compared."""

    junk: list[Superfluous]
    left: int

    def encode(self) -> bytes:
        """As JSON, for `decode`."""
        return orjson.dumps([[tuple(entry) for entry in self.junk], self.left])

    @classmethod
    def decode(cls, said: bytes) -> "Compared":
        """Raises ValueError where this is no such thing."""
        junk, left = orjson.loads(said)
        return cls([Superfluous(UUID(one), UUID(by), kind) for one, by, kind in junk], left)


def page(rows: Iterable[Any], columns: Sequence[str]) -> bytes:
    """Rows in which each column is found by its name, as one page. Instants that never come are null."""
    return orjson.dumps([[row[name] for name in columns] for row in rows], default=_identity)


def _identity(value: Any) -> str:
    """The driver's own kind of UUID."""
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"a row has a {type(value).__name__}")


def rows_of(pages: Iterable[bytes], columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of these pages again, one after the other; their ids are texts."""
    for each in pages:
        for values in orjson.loads(each):
            yield dict(zip(columns, values, strict=True))


def compare(held: Sequence[bytes], shown: Sequence[bytes], rest: Callable[[], None] | None = None) -> Compared:
    """Echoes first: what remains is compared with what is no echo, so nothing ends in favour of junk.

    Args:
        held: pages of HELD.
        shown: pages of SHOWN.
        rest: called again and again, for a thread that is not to be in the way.
    """
    reading, echoing, repeating = Effort(rest=rest), Effort(rest=rest), Effort(rest=rest)
    items = [_item(row) for row in reading.over(rows_of(held, HELD))]
    told = [each for row in reading.over(rows_of(shown, SHOWN)) for each in _told(row)]
    lasting = [item for item in items if POLICIES[item.memory_type].consolidates]  # type: ignore[index]
    junk = echoes(lasting, told, effort=echoing)
    echoed = {entry.id for entry in junk}
    junk += duplicates([item for item in lasting if item.id not in echoed], repeating)
    return Compared(junk, len((echoing.left | repeating.left) - {entry.id for entry in junk}))


def _item(row: dict[str, Any]) -> Item:
    return Item(
        UUID(row["id"]),
        row["memory_type"],
        row["text"],
        row["created"],
        standing=row["importance"] + row["earned"],
        pinned=row["pinned"],
        # Each episode is an event of its own, however alike two of them read; distilled memories have their own rule.
        distilled=row["source"] in ("consolidation", "episode"),
        begins=row["begins"],
        ends=_instant(row["ends"]),
        about=row["about"],
        details=details(orjson.loads(row["content"])),
    )


def _told(row: dict[str, Any]) -> list[Told]:
    """One for each time that it was shown."""
    said, ends = details(orjson.loads(row["content"])), _instant(row["ends"])
    return [Told(at, UUID(row["id"]), row["text"], ends, row["about"], said) for at in row["times"]]


def _instant(seconds: float | None) -> float:
    return math.inf if seconds is None else seconds
