"""From what was found to an answer: who is shown, in which order, and why. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, Literal
from uuid import UUID

import numpy as np
import orjson
from asyncpg.pgproto.pgproto import UUID as PackedUUID  # an uuid.UUID, made 20 times faster

from learnloop_dataplane.ranking.agent_cache import Kept, View
from learnloop_dataplane.ranking.candidates import Pending, Query, light_of_pending
from learnloop_dataplane.ranking.columns import Columns, Floats
from learnloop_dataplane.ranking.exploration import explore
from learnloop_dataplane.ranking.learned_ranker import Ranker
from learnloop_dataplane.ranking.memory_types import ALL_TYPES, MemoryType
from learnloop_dataplane.ranking.relevance_signals import SIGNALS, STATIC, Population, best, signals, weight_vector
from learnloop_dataplane.ranking.session_spread import spread
from learnloop_dataplane.ranking.word_postings import Rows

ScopeOfRecall = Literal["agent", "group", "namespace"]
NEAR = 20  # hits that came close are logged too: a ranker that learns needs to know what it did not show


@dataclass(frozen=True)
class Ask:
    """One question to one agent's memory.

    Attributes:
        at: answer as the agent would have answered at this instant.
        weights: other weights than the agent's ranker has, to see what would come first then; such a recall teaches
            nothing and is not logged.
        scope: whose memories: the agent's own, those of its group, or those of all agents of the namespace.
    """

    agent: str
    text: str
    k: int = 10
    types: tuple[MemoryType, ...] = ALL_TYPES
    at: datetime | None = None
    weights: Mapping[str, float] | None = None
    scope: ScopeOfRecall = "agent"


@dataclass  # there are ten in each answer: frozen ones take thrice as long to make, those with slots to encode
class Hit:
    """One recalled memory with the z-score of each signal; `content` is JSON already.

    Attributes:
        score: their weighted sum, less what others of its session take off.
    """

    id: UUID
    memory_type: str
    content: orjson.Fragment
    importance: float
    created_at: datetime
    score: float
    signals: dict[str, float]
    session_id: str | None = None
    origin: str = ""
    pinned: bool = False
    agent_id: str = ""


@dataclass(slots=True)
class Recall:
    """The answer to one recall. `plan` says how it was found, `ranker` whose weights put it in order."""

    retrieval_id: UUID
    plan: str
    ranker: str
    searched: int
    memories: list[Hit]
    degraded: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Ranked:
    """Memories in the order they are shown, and those that came close.

    Attributes:
        ids: of the at most k that are shown.
        packed: of all of them, at most k + 20, 16 bytes each.
        scores: float64 [n], less what others of a memory's session take off.
        z: their signals, float64 [n, 6].
        chances: with which probability each was to be among the k that are shown.
    """

    plan: str
    ranker: str
    searched: int
    ids: list[UUID]
    packed: bytes
    scores: Floats
    z: Floats
    chances: tuple[float, ...]


_STATIC = weight_vector(STATIC)
_RANDOM = Random()  # Python's own: numpy's is 2.5 MiB that nothing else here needs


def rank_kept(
    kept: Kept, view: View, ask: Ask, query: Query, pending: Sequence[Pending] = (), late: Floats | None = None
) -> Ranked:
    """What is kept, in the order of its scores.

    Args:
        view: the memories that may be shown.
        pending, late: those the indexer has not come to yet, and their cosines, float64 [pending].
    """
    columns, cosines = view.columns, kept.cosines(view, query.vector)
    if pending and late is not None:
        columns = columns.append(light_of_pending(list(pending)))
        cosines = np.concatenate([cosines, late])
    return rank("exact", ask, query, columns, cosines, kept.ranker)


def rank(
    plan: str,
    ask: Ask,
    query: Query,
    columns: Columns,
    cosines: Any,
    learned: Ranker | None,
    population: Population | None = None,
) -> Ranked:
    """Memories in the order of their scores.

    Args:
        plan: how they were found.
        cosines: of their vectors with the query's, float [n]; NaN for none.
        learned: the agent's ranker; None where it never got feedback.
        population: given where `columns` is only the part worth ranking.
    """
    found = signals(columns, cosines, query.hashes(), population, trust=query.trust)
    ranker, weights = _weights(ask, learned)
    scores = found.scores(weights)
    order: Rows = best(scores, columns.ids, ask.k + NEAR)
    scores = scores[order]
    # Who asks with weights of their own wants to see these alone.
    if ask.weights is None and columns.links is not None:
        places, scores = spread(scores, columns.threads[order])
        order = order[places]
    z = found.of(order)
    # Only an agent that gets feedback explores, and never a question about the past or about other weights.
    if learned is not None and ask.at is None and ask.weights is None:
        shown_in, explored = explore(z, ask.k, learned, _RANDOM)
        order, scores, z, chances = order[shown_in], scores[shown_in], z[shown_in], tuple(explored)
    else:
        chances = (1.0,) * min(ask.k, len(order)) + (0.0,) * max(len(order) - ask.k, 0)
    searched = population.size if population else len(columns)
    packed = columns.ids[order].tobytes()
    shown = min(ask.k, len(order))
    ids: list[UUID] = [PackedUUID(packed[start : start + 16]) for start in range(0, 16 * shown, 16)]
    return Ranked(plan, ranker, searched, ids, packed, scores, z, chances)


def _weights(ask: Ask, learned: Ranker | None) -> tuple[str, Floats]:
    if ask.weights is not None:
        return "request", weight_vector(ask.weights)
    if learned is not None and learned.active:
        return "learned", learned.vector()
    return "static", _STATIC


def hits_of(ranked: Ranked, rows: Sequence[Any], k: int) -> list[Hit]:
    """Rows begin with id, type, content, importance, created, session, origin, pinned, agent; one that went is out."""
    found = {row[0]: row for row in rows}
    scores, z = ranked.scores[:k].round(6).tolist(), ranked.z[:k].round(6).tolist()
    hits = []
    for identity, score, values in zip(ranked.ids, scores, z, strict=True):
        row = found.get(identity)
        if row is not None:
            named = dict(zip(SIGNALS, values, strict=True))
            content = orjson.Fragment(row[2])
            hits.append(Hit(identity, row[1], content, row[3], row[4], score, named, row[5], row[6], row[7], row[8]))
    return hits
