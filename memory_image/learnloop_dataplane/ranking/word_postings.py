"""Words by who has them: what BM25 looks up. Pure."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
Holders = tuple[NDArray[np.integer[Any]], NDArray[np.uint8]]  # who has a word, and how often each


@dataclass(frozen=True)
class Postings:
    """Words' hashes in order; the owners and counts of word i are those from first[i] to first[i + 1].

    Attributes:
        rows: how many memories these postings cover.
    """

    distinct: NDArray[np.uint32]
    first: NDArray[np.int32]
    owners: NDArray[np.integer[Any]]
    counts: NDArray[np.uint8]
    rows: int

    @classmethod
    def of(cls, words: NDArray[np.uint32], lengths: NDArray[np.int32]) -> "Postings":
        """Of words in the form of `Columns.words`, of which each memory has `lengths`."""
        hashes: NDArray[Any] = words >> 8
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)])
        distinct: NDArray[np.uint32] = hashes[first]
        kind: type[np.integer[Any]] = np.uint16 if len(lengths) <= 2**16 else np.int32
        owners = np.repeat(np.arange(len(lengths), dtype=kind), lengths)[order]
        counts = (words & 255).astype(np.uint8)[order]
        return cls(distinct, np.append(first, len(order)).astype(np.int32), owners, counts, len(lengths))

    def words(self) -> NDArray[np.uint32]:
        """The words memory by memory again, those of one memory in the order of their hashes."""
        hashes: NDArray[Any] = np.repeat(self.distinct, np.diff(self.first))
        words: NDArray[np.uint32] = (hashes << 8 | self.counts).astype(np.uint32)[
            np.argsort(self.owners, kind="stable")
        ]
        return words

    def tokens(self) -> NDArray[np.float64]:
        """How many words each memory has, repeated ones counted, float64 [rows]."""
        return np.bincount(self.owners, self.counts, self.rows).astype(np.float64, copy=False)

    def frequency(self, query: NDArray[np.uint32]) -> NDArray[np.int64]:
        """In how many memories each word occurs, int64 [q]."""
        if not len(self.distinct):
            return np.zeros(len(query), np.int64)
        places = np.minimum(np.searchsorted(self.distinct, query), len(self.distinct) - 1)
        held = (self.first[places + 1] - self.first[places]).astype(np.int64)
        return np.where(self.distinct[places] == query, held, 0)

    def find(self, query: NDArray[np.uint32]) -> list[Holders]:
        """For each word the memories that have it."""
        places = np.minimum(np.searchsorted(self.distinct, query), max(len(self.distinct) - 1, 0))
        found = []
        for word, place in zip(query.tolist(), places.tolist(), strict=True):
            hit = len(self.distinct) > 0 and self.distinct[place] == word
            part = slice(self.first[place], self.first[place + 1]) if hit else slice(0, 0)
            found.append((self.owners[part], self.counts[part]))
        return found


def find_late(
    words: NDArray[np.uint32], lengths: NDArray[np.int32], begin: int, query: NDArray[np.uint32]
) -> list[Holders]:
    """The same of few memories that have no postings, numbered from `begin`."""
    ends = np.cumsum(lengths)
    found: list[Holders] = []
    for word in query.tolist():
        places = np.flatnonzero(words >> 8 == word)
        owners = begin + np.searchsorted(ends, places, side="right").astype(np.int32)
        found.append((owners, (words[places] & 255).astype(np.uint8)))
    return found
