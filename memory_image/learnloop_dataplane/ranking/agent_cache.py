"""One agent's memories in this process: light columns and half-size vectors, always at a known snapshot."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.ranking.candidates import light, read
from learnloop_dataplane.ranking.columns import Columns, Floats, once
from learnloop_dataplane.ranking.fixed_point_vectors import Fixed
from learnloop_dataplane.ranking.learned_ranker import Ranker
from learnloop_dataplane.ranking.word_postings import Rows

Key = tuple[str, str]
AGENT_BYTES = 4096  # of an agent, however few memories it has
ENDED_SHARE = 4  # with more than a quarter ended, everything is read again
KEPT = (("kinds", ">i2"), ("begins", ">f8"), ("ends", ">f8"))


@dataclass(frozen=True)
class View:
    """The memories that some recall may see.

    Attributes:
        columns: theirs.
        rows: where their vectors are; None when these are all memories.
        since, until: the instants, in seconds since 1970, between which this holds.
    """

    columns: Columns
    rows: Rows | None
    since: float
    until: float


class Kept:
    """What is known of one agent as of one snapshot of the database.

    Attributes:
        snapshot: PostgreSQL's text form of it; what was committed later is found by it.
        asked: monotonic seconds, just before the question that this answers was sent.
        pending: the answer's memories that wait for the indexer.
        loaded: monotonic seconds.
        ranker_state, ranker: as stored, and parsed; None for an agent that never got feedback.
    """

    def __init__(self, row: Any, asked: float, dimensions: int, room: int = 0) -> None:
        part = _Part.of(row, dimensions)
        self._dimensions = dimensions
        self.columns = part.columns
        self._kinds, self._begins, self._ends, self._known = part.kinds, part.begins, part.ends, part.known
        self._vectors = part.vectors
        self._views: dict[tuple[int, ...], View] = {}
        self.loaded = time.monotonic()
        self._reserve(room)
        self._compact()
        self._seen(row, asked)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def size(self) -> int:
        """Bytes, about."""
        arrays: list[NDArray[Any]] = [
            self._kinds,
            self._begins,
            self._ends,
            self._known,
            self.columns.ids,
        ]
        word = 4 if len(self) <= 2**16 else 5  # by memory until somebody asks, then by word
        words = word * int(self.columns.lengths.sum())
        return sum(array.nbytes for array in arrays) + self._vectors.nbytes + words + 48 * len(self) + AGENT_BYTES

    def now(self) -> float:
        """The database's clock, as far as it is known here."""
        return self._clock + time.monotonic() - self.asked

    def update(self, row: Any, asked: float) -> bool:
        """Takes in what changed since the snapshot; False when it is better to read everything again."""
        if row["gone"]:
            return False
        if row["n"]:
            self._apply(_Part.of(row, self._dimensions))
            self._views.clear()
            if int((self._ends <= row["now"]).sum()) * ENDED_SHARE > len(self):
                return False
        self._seen(row, asked)
        return True

    def add(self, row: Any) -> None:
        """Takes in memories that were left out so far."""
        self._append(_Part.of(row, self._dimensions))

    def prepare(self) -> None:
        """Works out now what the first question would have to wait for."""
        self._compact()
        self.columns = self.columns.by_word()
        _ = self.columns.norm

    def view(self, kinds: tuple[int, ...], now: float) -> View:
        """The memories of these types that are visible at this instant."""
        known = self._views.get(kinds)
        if known is None or not known.since <= now < known.until:
            known = self._views[kinds] = self._view(kinds, now)
        return known

    def cosines(self, view: View, vector: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """float32 [n] of the view's memories; NaN for those without a vector of this embedder."""
        if vector is None:
            return np.full(len(view.columns), np.nan, np.float32)
        out = self._vectors.dot(vector, len(self))
        if not self._known.all():
            out[~self._known] = np.nan
        return out if view.rows is None else out[view.rows]

    def _seen(self, row: Any, asked: float) -> None:
        self.snapshot: str = row["snapshot"]
        self._clock: float = row["now"]
        self.asked = asked
        self.pending: Any = row["pending"]
        self.ranker_state: str | None = row["ranker"]
        self.ranker = Ranker.from_text(self.ranker_state)

    def _view(self, kinds: tuple[int, ...], now: float) -> View:
        of_type = np.isin(self._kinds, kinds)
        shown = of_type & (self._begins <= now) & (self._ends > now)
        edges = np.concatenate([self._begins[of_type], self._ends[of_type]])
        before, after = edges[edges <= now], edges[edges > now]
        since, until = float(before.max(initial=-np.inf)), float(after.min(initial=np.inf))
        if shown.all():
            self.columns = self.columns if self.columns.indexed else self.columns.by_word()
            return View(self.columns, None, since, until)
        rows = np.flatnonzero(shown)
        return View(self.columns.take(rows).by_word(), rows, since, until)

    def _apply(self, changes: "_Part") -> None:
        places = _places(self.columns, changes.columns)
        old, new = np.flatnonzero(places >= 0), np.flatnonzero(places < 0)
        if len(old):
            self._replace(places[old], changes.take(old))
        if len(new):
            self._append(changes.take(new))

    def _replace(self, at: Rows, part: "_Part") -> None:
        # Of what `once` keeps, or `columns` too, only a copy can be changed.
        self._begins, self._ends, self._known = self._begins.copy(), self._ends.copy(), self._known.copy()
        self._begins[at], self._ends[at], self._known[at] = part.begins, part.ends, part.known
        self._vectors.put(at, part.vectors)
        self.columns = self.columns.changed(at, part.columns)

    def _append(self, part: "_Part") -> None:
        n, m = len(self), len(self) + len(part.columns)
        if m > self._vectors.room:
            self._reserve(m + max(m // 16, 16))
        self._vectors.put(slice(n, m), part.vectors)
        self.columns = self.columns.append(part.columns)
        self._kinds = np.concatenate([self._kinds, part.kinds])
        self._begins = np.concatenate([self._begins, part.begins])
        self._ends = np.concatenate([self._ends, part.ends])
        self._known = np.concatenate([self._known, part.known])

    def _reserve(self, room: int) -> None:
        """Has place for so many vectors."""
        if room > self._vectors.room:
            self._vectors = self._vectors.with_room(room)

    def _compact(self) -> None:
        """Keeps once what is alike in all memories."""
        self.columns = self.columns.compact()
        if np.array_equal(self._begins, self.columns.created):
            self._begins = self.columns.created
        self._kinds, self._ends, self._known = once(self._kinds), once(self._ends), once(self._known)


@dataclass(frozen=True)
class _Part:
    """Memories of one answer.

    Attributes:
        kinds: codes of their types, int16 [n].
        begins, ends: seconds since 1970, float64 [n].
        known: have they a vector of this embedder?
        vectors: theirs.
    """

    columns: Columns
    kinds: NDArray[np.int16]
    begins: Floats
    ends: Floats
    known: NDArray[np.bool_]
    vectors: Fixed

    @classmethod
    def of(cls, row: Any, dimensions: int) -> "_Part":
        """An answer to one of the statements of `column_queries`."""
        kinds, begins, ends = (read(row[name], kind) for name, kind in KEPT)
        known = read(row["known"], "u1").astype(bool)
        vectors = Fixed.of(row["vectors"], known, dimensions)
        return cls(
            light(row), kinds.astype(np.int16), begins.astype(np.float64), ends.astype(np.float64), known, vectors
        )

    def take(self, rows: Rows) -> "_Part":
        """Only these memories."""
        columns, vectors = self.columns.take(rows), self.vectors.take(rows)
        return _Part(columns, self.kinds[rows], self.begins[rows], self.ends[rows], self.known[rows], vectors)


class Cache:
    """Agents by how recently they were asked, up to so many bytes."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[Key, Kept] = OrderedDict()
        self._sizes: dict[Key, int] = {}
        self._total = 0

    @property
    def room(self) -> int:
        """Bytes that could be kept without letting anyone go."""
        return self.most_bytes - self._total

    def get(self, key: Key) -> Kept | None:
        """What is known of this agent; it becomes the last to go."""
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
        return kept

    def put(self, key: Key, kept: Kept) -> None:
        """Keeps it (again, with its new size) and lets others go for it."""
        self.drop(key)
        size = kept.size
        if size > self.most_bytes:
            return
        self._kept[key], self._sizes[key] = kept, size
        self._total += size
        while self._total > self.most_bytes:
            self.drop(next(iter(self._kept)))

    def drop(self, key: Key) -> None:
        """Lets one go, if it is there."""
        if self._kept.pop(key, None) is not None:
            self._total -= self._sizes.pop(key)


def _places(columns: Columns, changes: Columns) -> Rows:
    """Where each of the changed memories is, -1 for a new one."""
    tails = np.ascontiguousarray(columns.ids[:, 8:]).view(np.uint64).ravel()
    likely = np.flatnonzero(np.isin(tails, np.ascontiguousarray(changes.ids[:, 8:]).view(np.uint64).ravel()))
    mine = {columns.ids[place].tobytes(): place for place in likely}
    return np.array([mine.get(identity.tobytes(), -1) for identity in changes.ids], np.intp)
