"""From columns to one number for each memory: six signals, z-scored over the agent's memories, and their sum.

Pure functions. A weighted sum, because reciprocal rank fusion of BM25 and vectors finds less of LoCoMo's evidence than
BM25 alone. A signal without spread says nothing: its z is 0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_dataplane.ranking.columns import K1, STANDING, Columns, Floats, z_scores
from learnloop_dataplane.ranking.word_postings import Rows

SIGNALS = ("vector", "lexical", "context", *STANDING)
MOST_WORDS = 64  # of a question
SESSION = 0.9  # what the best of a session counts for each memory of it, beside its neighbours
BLOCK = 16  # scores whose highest stands for them while the best are looked for
# A cosine's z-score comes times its embedder's trust. These, BM25's constants and the reach of the context were picked
# by leaving out one conversation after the other of five; docs on recall say how.
STATIC: Mapping[str, float] = {
    "vector": 1.0,
    "lexical": 1.0,
    "context": 1.4,
    "recency": 0.25,
    "importance": 0.25,
    "utility": 0.5,
}


@dataclass(frozen=True)
class Population:
    """What the candidates were chosen from, where they are not all: the size, and how many hold each query word.

    Attributes:
        size: memories of the agent.
        frequency: for each of the query's words, in its order, in how many memories it occurs.
    """

    size: int
    frequency: Floats


@dataclass(frozen=True)
class Signals:
    """The z-scores of n memories, signal by signal; side by side only for the few that are shown.

    The vector's are times what its embedder is trusted with.

    Attributes:
        found: the memories; what does not depend on the question is worked out there once.
        vector, lexical: float64 [n].
        context: float64 [n]; None where no memory belongs to a session, and all are 0.
    """

    found: Columns
    vector: Floats
    lexical: Floats
    context: Floats | None

    def scores(self, weights: Floats) -> Floats:
        """Their weighted sums, float64 [n].

        Args:
            weights: float64 [6] in the order of SIGNALS.
        """
        total: Floats = self.vector * weights[0]
        total += self.lexical * weights[1]
        if self.context is not None:
            total += self.context * weights[2]
        total += self.found.worth(weights[3:])
        return total

    def of(self, rows: Rows) -> Floats:
        """The z-scores of these memories, float64 [len(rows), 6], columns as in SIGNALS."""
        z = np.zeros((len(rows), len(SIGNALS)))
        z[:, 0], z[:, 1] = self.vector[rows], self.lexical[rows]
        if self.context is not None:
            z[:, 2] = self.context[rows]
        z[:, 3:] = self.found.standing(rows)
        return z


def weight_vector(weights: Mapping[str, float]) -> Floats:
    """float64 [6] in the order of SIGNALS; a signal that is not named counts nothing."""
    return np.array([weights.get(name, 0.0) for name in SIGNALS])


def signals(
    found: Columns,
    cosines: NDArray[np.floating],
    query: NDArray[np.uint32],
    population: Population | None = None,
    *,
    trust: float = 1.0,
) -> Signals:
    """The z-scores of all memories for one question.

    Args:
        found: the memories.
        cosines: of their vectors with the query's, float [n]; NaN where a memory has none of this embedder (yet).
        query: hashes of the query's distinct words, uint32 [q].
        population: given when `found` is only the part worth ranking of a larger memory.
        trust: what the cosines' z-scores are multiplied by.
    """
    size = population.size if population else len(found)
    vector = z_scores(cosines)
    vector *= trust
    lexical = z_scores(bm25(found, query, population), zeros=max(size - len(found), 0))
    context = _context(found, vector + lexical) if found.links is not None else None
    return Signals(found, vector, lexical, context)


def bm25(found: Columns, query: NDArray[np.uint32], population: Population | None = None) -> Floats:
    """Okapi BM25 of each memory, float64 [n]: an OR of the words, rare ones counting more.

    An AND of the words, which is what `plainto_tsquery` makes, has a recall of 0.09 on questions.
    """
    n = len(found)
    if not n or not len(query):
        return np.zeros(n)
    size = population.size if population else n
    if len(query) > MOST_WORDS:
        chosen = telling(population.frequency if population else found.frequency(query))
        query = query[chosen]
        population = replace(population, frequency=population.frequency[chosen]) if population else None
    frequencies = population.frequency.tolist() if population else None
    owners, counts, rarity, many = [], [], [], []
    for index, (holders, times) in enumerate(found.find(query)):
        if len(holders):
            frequency = frequencies[index] if frequencies else float(len(holders))
            owners.append(holders)
            counts.append(times)
            rarity.append(math.log1p((max(size - frequency, 0.0) + 0.5) / (frequency + 0.5)))
            many.append(len(holders))
    if not owners:
        return np.zeros(n)
    holders, times = np.concatenate(owners), np.concatenate(counts)
    weights = np.repeat(rarity, many) * times * (K1 + 1) / (times + found.norm[holders])
    total: Floats = np.bincount(holders, weights, n).astype(np.float64, copy=False)
    return total


def telling(frequency: NDArray[Any]) -> Rows:
    """Which words of a long question are looked for: the rarest that somebody has, at most MOST_WORDS, in their order.

    A page of text has hundreds of words, and what it is about may be said last.
    """
    rarity = np.where(frequency > 0, frequency, np.inf)
    rows: Rows = np.sort(np.argsort(rarity, kind="stable")[:MOST_WORDS])
    return rows


def _context(found: Columns, score: Floats) -> Floats:
    """z-scores of what stands around each memory: its neighbours, and the best of its session."""
    context = z_scores(neighbours(found, score))
    context += SESSION * z_scores(session_best(found, score))
    return z_scores(context)


def session_best(found: Columns, score: Floats) -> Floats:
    """For each memory the highest score within its session, float64 [n]; its own where it is of none.

    Many turns share a question's words by chance; the session that has the best of them is more often the right one.
    """
    if found.links is None:
        return score
    context = np.empty(len(found))
    context[found.links.order] = found.links.best(score[found.links.order])
    return context


def neighbours(found: Columns, score: Floats) -> Floats:
    """For each memory the weighted mean score of those around it in its session, float64 [n]; 0 for none.

    The turn that answers a question is often next to the one that has its words, or one further: two on each side
    count, those next to it 1, the others 0.7.
    """
    context = np.zeros(len(found))
    if found.links is None:
        return context
    ordered = score[found.links.order]
    total = np.zeros(len(found))
    for distance, linked in enumerate(found.links.linked, 1):
        total[distance:] += ordered[:-distance] * linked
        total[:-distance] += ordered[distance:] * linked
    total /= found.links.most
    context[found.links.order] = total
    return context


def best(scores: Floats, ids: NDArray[np.uint8], k: int) -> Rows:
    """Indices of the k highest scores, highest first; equal scores in the order of their ids, whoever asks."""
    blocks = len(scores) // BLOCK
    if blocks > 2 * k:
        # The k-th best block's best is at most the k-th best score. Everything that ties with it stays in, so that the
        # cut does not depend on the scan's order.
        tops = scores[: blocks * BLOCK].reshape(BLOCK, blocks).max(axis=0)
        chosen = np.flatnonzero(scores >= np.partition(tops, blocks - k)[blocks - k])
    else:
        chosen = np.arange(len(scores))
    order: Rows = chosen[np.argsort(-scores[chosen])][: k + 1]
    ranked = scores[order]
    if (ranked[1:] == ranked[:-1]).any():
        order = chosen[np.lexsort((ids[chosen].view("S16").ravel(), -scores[chosen]))]
    return order[:k]
