"""The light columns of one agent's memories. Pure."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.ranking.word_postings import Holders, Postings, Rows, find_late

Floats = NDArray[np.float64]
Element = TypeVar("Element", bound=np.generic)
K1, B = 0.9, 0.4  # BM25's constants for short texts (Trotman et al., 2012)
REACH = (1.0, 0.7)  # what a session's memory next to another one counts for it, and the one after that
# Of recency, importance and utility, which are numbers up to 1: smaller differences than this are not blown up to count
# as much as larger ones. Without it a day's memories were told apart by the hour, and one that helped once came first.
LEAST_SPREAD = 0.1
STANDING = ("recency", "importance", "utility")  # the signals that do not depend on the question
RECENCY_HALF_LIFE_SECONDS = 7.0 * 86_400.0
EACH = ("ids", "lengths", "created", "importance", "utility", "threads")  # columns of one element for each memory
# Words of memories that came after the postings were made are looked for one by one, up to this share of all.
TAIL_SHARE, TAIL_LEAST = 8, 256


@dataclass(frozen=True)
class Columns:
    """Columns over the same n memories. What is worked out from them is kept as long as they are.

    Attributes:
        ids: bytes [n, 16].
        words: hash << 8 | count of every distinct word, memory by memory, uint32 [m]; without those in `indexed`.
        lengths: how many distinct words each memory has, int32 [n].
        created: seconds since 1970, float64 [n].
        importance, utility: float32 [n].
        threads: int64 [n], 0 where a memory belongs to no session.
        indexed: the words of the first memories, instead of in `words`.
    """

    ids: NDArray[np.uint8]
    words: NDArray[np.uint32]
    lengths: NDArray[np.int32]
    created: Floats
    importance: NDArray[np.float32]
    utility: NDArray[np.float32]
    threads: NDArray[np.int64]
    indexed: Postings | None = None

    def __len__(self) -> int:
        return len(self.created)

    def uuid(self, index: int) -> UUID:
        """The id of one memory."""
        return UUID(bytes=self.ids[index].tobytes())

    def take(self, rows: Rows) -> "Columns":
        """Only these memories, in this order."""
        starts = np.cumsum(self.lengths) - self.lengths
        lengths = self.lengths[rows]
        # For each word its place within its memory, plus where that memory's words begin.
        within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return Columns(
            ids=self.ids[rows],
            words=self.all_words()[np.repeat(starts[rows], lengths) + within],
            lengths=lengths,
            created=self.created[rows],
            importance=self.importance[rows],
            utility=self.utility[rows],
            threads=self.threads[rows],
        )

    def compact(self) -> "Columns":
        """The same memories; what is alike in all of them is kept once."""
        return replace(
            self,
            importance=once(self.importance),
            utility=once(self.utility),
            threads=once(self.threads),
        )

    def all_words(self) -> NDArray[np.uint32]:
        """The words of all memories, in the form of `words`, uint32 [sum of lengths]."""
        return self.words if self.indexed is None else np.concatenate([self.indexed.words(), self.words])

    def by_word(self) -> "Columns":
        """The same memories; their words are kept as postings alone."""
        if self.indexed is not None and self.indexed.rows == len(self):
            return self
        postings = self.postings if self.indexed is None else Postings.of(self.all_words(), self.lengths)
        # Not a slice: that would keep all of them.
        return replace(self, words=np.zeros(0, np.uint32), indexed=postings)

    def append(self, other: "Columns") -> "Columns":
        """These memories and then the others. Postings are taken over while few memories came after them."""
        known = self.__dict__.get("postings", self.indexed)
        total = len(self) + len(other)
        if known is not None and total - known.rows <= max(total // TAIL_SHARE, TAIL_LEAST):
            late = self.words if self.indexed is not None else self.words[:0]
        else:
            known, late = None, self.all_words()
        joined = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in EACH}
        return Columns(words=np.concatenate([late, other.all_words()]), indexed=known, **joined)

    def changed(self, rows: Rows, other: "Columns") -> "Columns":
        """With the importance and utility that `other` has for these rows; nothing else of a memory ever changes."""
        importance, utility = self.importance.copy(), self.utility.copy()
        importance[rows], utility[rows] = other.importance, other.utility
        return replace(self.by_word(), importance=importance, utility=utility)

    @cached_property
    def postings(self) -> Postings:
        """Which memories have which word, those behind `indexed` left out."""
        return self.indexed or Postings.of(self.words, self.lengths)

    def find(self, query: NDArray[np.uint32]) -> list[Holders]:
        """For each word the memories that have it and how often each does."""
        found, rows = self.postings.find(query), self.postings.rows
        if rows == len(self):
            return found
        late = find_late(self.words, self.lengths[rows:], rows, query)
        pairs = zip(found, late, strict=True)
        return [(np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]])) for a, b in pairs]

    def frequency(self, query: NDArray[np.uint32]) -> NDArray[np.int64]:
        """In how many memories each word occurs, int64 [q]."""
        found = self.postings.frequency(query)
        if self.postings.rows < len(self):
            order = np.argsort(query)
            late: NDArray[Any] = self.words >> 8
            places = np.minimum(np.searchsorted(query, late, sorter=order), len(query) - 1)
            hits = order[places][query[order[places]] == late]
            found += np.bincount(hits, minlength=len(query))
        return found

    @cached_property
    def norm(self) -> NDArray[np.float32]:
        """What BM25 adds to a word's count for the memory's length against the mean length, float32 [n]."""
        tokens, rows = self.postings.tokens(), self.postings.rows
        if rows < len(self):
            owners = np.repeat(np.arange(len(self) - rows), self.lengths[rows:])
            late = np.bincount(owners, (self.words & 255).astype(np.float64), len(self) - rows)
            tokens = np.concatenate([tokens, late])
        norm = K1 * (1 - B + B * tokens / max(float(tokens.sum()) / max(len(self), 1), 1e-9))
        return norm.astype(np.float32)

    @cached_property
    def _newest(self) -> float:
        return float(self.created.max()) if len(self) else 0.0

    @cached_property
    def _moments(self) -> tuple[tuple[float, float], ...]:
        """Mean and deviation of each of STANDING; kept instead of the z-scores, which are made anew in no time."""
        found = (moments(self._standing(signal, slice(None))) for signal in range(len(STANDING)))
        return tuple((mean, max(deviation, LEAST_SPREAD)) for mean, deviation in found)

    def _standing(self, signal: int, rows: Rows | slice) -> NDArray[Any]:
        if signal:
            return (self.importance, self.utility)[signal - 1][rows]
        # It halves every 7 days. What passes since halves everybody's alike, and a z-score does not see a factor.
        return np.exp2((self.created[rows] - self._newest) / RECENCY_HALF_LIFE_SECONDS)

    def standing(self, rows: Rows) -> Floats:
        """z-scores of recency, importance and utility of these memories among all, float64 [rows, 3]: they do not
        depend on the question."""
        z = np.zeros((len(rows), len(STANDING)))
        for signal, (mean, deviation) in enumerate(self._moments):
            if deviation < np.inf:
                z[:, signal] = (self._standing(signal, rows) - mean) / deviation
        return z

    def worth(self, weights: Floats) -> NDArray[np.float32]:
        """What recency, importance and utility add to the score, float32 [n]; kept for the weights used last."""
        key = weights.tobytes()
        kept: tuple[bytes, NDArray[np.float32]] | None = self.__dict__.get("_worth")
        if kept is None or kept[0] != key:
            total = np.zeros(len(self))
            for signal, (mean, deviation) in enumerate(self._moments):
                if deviation < np.inf:
                    total += (self._standing(signal, slice(None)) - mean) * (weights[signal] / deviation)
            kept = self.__dict__["_worth"] = key, total.astype(np.float32)
        return kept[1]

    @cached_property
    def links(self) -> "Links | None":
        """Who stands next to whom in a session; None where no memory belongs to one."""
        if not self.threads.any():
            return None
        # Turns that were stored together have one instant; their ids are in the order in which they were said.
        said = np.ascontiguousarray(self.ids[:, :8]).view(">u8").ravel()
        order = np.lexsort((said, self.created, self.threads))
        threads = self.threads[order]
        linked, most = [], np.zeros(len(self))
        for distance, weight in enumerate(REACH, 1):
            same = (threads[distance:] == threads[:-distance]) & (threads[distance:] != 0)
            linked.append(same * weight)
            most[distance:] += linked[-1]
            most[:-distance] += linked[-1]
        most[most == 0] = 1.0
        first = np.flatnonzero(np.concatenate([[True], (threads[1:] != threads[:-1]) | (threads[1:] == 0)]))
        return Links(order, tuple(linked), most, first)


@dataclass(frozen=True)
class Links:
    """Memories in the order of their sessions.

    Attributes:
        linked: for each distance of REACH what the i-th and the one so far behind it count for each other, float64
            [n - distance]; 0 where they are not of one session.
        most: the sum of what all around it count for each, float64 [n]; 1 where there are none.
        first: where each session begins, intp [sessions]; a memory of none is a session of one.
    """

    order: Rows
    linked: tuple[Floats, ...]
    most: Floats
    first: Rows

    def best(self, ordered: Floats) -> Floats:
        """For each memory the highest value within its session, float64 [n].

        Args:
            ordered: a value of each memory, float64 [n]; both are in `order`.
        """
        highest: Floats = np.maximum.reduceat(ordered, self.first)
        return np.repeat(highest, np.diff(self.first, append=len(ordered)))


def once(values: NDArray[Element]) -> NDArray[Element]:
    """The same array, [n], to be read only; where all elements are equal, one of them is all it holds."""
    if len(values) and (values == values[0]).all():
        return np.broadcast_to(values[:1].copy(), values.shape)
    return values


def moments(values: NDArray[Any], zeros: int = 0) -> tuple[float, float]:
    """Mean and standard deviation; infinite where nothing differs, so that every z-score is 0.

    Args:
        values: without NaN.
        zeros: so many more members of the population are known to be 0.
    """
    values = values.astype(np.float64, copy=False)
    size = len(values) + zeros
    if size < 2:
        return 0.0, np.inf
    mean = float(values.sum()) / size
    spread = float(values @ values) / size - mean * mean
    return mean, math.sqrt(spread) if spread > 1e-12 * max(mean * mean, 1e-6) else np.inf


def z_scores(values: NDArray[Any], zeros: int = 0) -> Floats:
    """z-scores, float64; NaN (no value) becomes 0, and so does everything where nothing differs. Args: see moments."""
    values = values.astype(np.float64, copy=False)
    missing = np.isnan(values)
    some = bool(missing.any())
    mean, deviation = moments(values[~missing] if some else values, zeros)
    z: Floats = (values - mean) / deviation
    if some:
        z[missing] = 0.0
    return z
