"""Recall: find, score, rank, fetch. The answer says how it was found and why each memory is in it."""

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import orjson
from asyncpg.pgproto.pgproto import UUID as PackedUUID  # an uuid.UUID, made 20 times faster

from learnloop_memory.errors import Unavailable
from learnloop_memory.ids import uuid7
from learnloop_memory.memory.big import BigAgents
from learnloop_memory.memory.cache import Kept, View
from learnloop_memory.memory.candidates import (
    EXACT,
    MOST_PENDING,
    Pending,
    Query,
    cosines_of,
    light,
    light_of_pending,
    pending_of,
)
from learnloop_memory.memory.columns import Columns, Floats
from learnloop_memory.memory.embedder import Embedder
from learnloop_memory.memory.indexer import Indexer
from learnloop_memory.memory.kinds import ALL_TYPES, MemoryType
from learnloop_memory.memory.log import Recalled, RecallLog
from learnloop_memory.memory.postings import Rows
from learnloop_memory.memory.ranker import Ranker, explore
from learnloop_memory.memory.reader import Reader
from learnloop_memory.memory.shown import Shown
from learnloop_memory.memory.signals import SIGNALS, STATIC, Population, best, signals, weight_vector
from learnloop_memory.memory.text import words
from learnloop_memory.store.database import Database
from learnloop_memory.vectors.port import StoreAway

log = logging.getLogger(__name__)
NEAR = 20  # hits that came close are logged too: a ranker that learns needs to know what it did not show
EMBED_SECONDS = 0.5
MAX_EMBEDDED_ON_THE_WAY = 256


@dataclass(frozen=True)
class Ask:
    """One question to one agent's memory.

    Attributes:
        at: answer as the agent would have answered at this instant.
        weights: other weights than the agent's ranker has, to see what would come first then; such a recall teaches
            nothing and is not logged.
    """

    agent: str
    text: str
    k: int = 10
    types: tuple[MemoryType, ...] = ALL_TYPES
    at: datetime | None = None
    weights: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One recalled memory with the z-score of each signal and their weighted sum; `content` is JSON already."""

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


@dataclass(frozen=True, slots=True)
class Recall:
    """The answer to one recall. `plan` says how it was found, `ranker` whose weights put it in order."""

    retrieval_id: UUID
    plan: str
    ranker: str
    searched: int
    memories: list[Hit]
    degraded: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ranked:
    """Memories in the order they are shown, and those that came close.

    Attributes:
        ids: of the at most k that are shown.
        packed: of all of them, at most k + 20, 16 bytes each.
        scores: float64 [n].
        z: their signals, float64 [n, 6].
        chances: with which probability each was put where it is.
    """

    plan: str
    ranker: str
    searched: int
    ids: list[UUID]
    packed: bytes
    scores: Floats
    z: Floats
    chances: tuple[float, ...]


class Recaller:
    """Answers recalls of all agents."""

    def __init__(
        self,
        db: Database,
        embedder: Embedder,
        log: RecallLog,
        shown: Shown,
        big: BigAgents,
        reader: Reader,
        indexer: Indexer,
    ) -> None:
        self._db = db
        self._shown = shown
        self._indexer = indexer
        self._embedder = embedder
        self._log = log
        self._big = big
        self._reader = reader

    async def recall(self, namespace: str, ask: Ask) -> Recall:
        """The k best memories of one agent for a text.

        Raises:
            Unavailable: PostgreSQL does not answer. Without the embedder the answer comes from the words alone.
        """
        arrived = time.monotonic()
        query = await self._query(ask)
        if ask.at is not None or self._big.indexed(namespace, ask.agent):
            ranked, rows = await self._scanned(namespace, ask, query)
        else:
            ranked, rows = await self._kept(namespace, ask, query, arrived)
        retrieval_id = uuid7()
        if ask.weights is None and ask.at is None:
            self._remember(namespace, ask, retrieval_id, ranked)
        self._shown.add(namespace, ask.agent, ((row[0], row[2]) for row in rows))
        degraded = ["embedder"] if query.vector is None else []
        if ask.at is None and self._big.troubled(namespace, ask.agent):
            degraded.append("vector store")
        return Recall(retrieval_id, ranked.plan, ranked.ranker, ranked.searched, _hits(ranked, rows, ask.k), degraded)

    async def _query(self, ask: Ask) -> Query:
        vector: Any = None
        try:
            if self._embedder.instant:
                [vector] = await self._embedder.embed([ask.text])
            else:
                async with asyncio.timeout(EMBED_SECONDS):
                    [vector] = await self._embedder.embed([ask.text])
        except (Unavailable, TimeoutError) as error:
            log.warning("recall goes by words only: %s", error or "the embedder takes too long")
        return Query(ask.text, words(ask.text), vector, self._embedder.name, ask.at, ask.types)

    async def _kept(self, namespace: str, ask: Ask, query: Query, arrived: float) -> tuple[Ranked, Sequence[Any]]:
        """Ranks what is kept and asks, together with the texts, whether it was still true; if not, once more."""
        kept = self._reader.peek(namespace, ask.agent)
        if kept is not None:
            view = kept.view(query.kinds(), kept.now())
            ranked = _rank_kept(kept, view, ask, query)
            found = await self._reader.check(namespace, ask.agent, kept.snapshot, ranked.ids)
            current = not found.changed and found.ranker == kept.ranker_state
            if current and view.since <= found.now < view.until:
                return ranked, found.rows
        kept = await self._reader.fresh(namespace, ask.agent, arrived)
        if kept is not None and len(kept.pending or ()) >= MOST_PENDING // 2:
            # Just after a large import: indexing them now takes as long as ranking them unindexed a few times.
            await self._indexer.run(namespace)
            kept = await self._reader.fresh(namespace, ask.agent, time.monotonic())
        if kept is None:
            return await self._scanned(namespace, ask, query)
        pending = pending_of({"pending": kept.pending}, ask.types)
        late = await self._on_the_way(pending, query)
        ranked = _rank_kept(kept, kept.view(query.kinds(), kept.now()), ask, query, pending, late)
        return ranked, await self._reader.texts(namespace, ask.agent, ranked.ids)

    async def _scanned(self, namespace: str, ask: Ask, query: Query) -> tuple[Ranked, Sequence[Any]]:
        """Has PostgreSQL read the memories for this one question."""
        plan, row, population = "exact", None, None
        if self._big.indexed(namespace, ask.agent) and ask.at is None:
            with suppress(StoreAway):  # an answer that is slow, but whole
                row, population = await self._big.find(namespace, ask.agent, query)
                plan = self._big.plan
        if row is None:
            [row] = await self._db.fetch_as(namespace, EXACT, *query.arguments(namespace, ask.agent)[1:])
        pending = pending_of(row, ask.types)
        columns = light(row).append(light_of_pending(pending))
        cosines = np.concatenate([cosines_of(row), await self._on_the_way(pending, query)])
        ranked = _rank(plan, ask, query, columns, cosines, Ranker.from_text(row["ranker"]), population)
        return ranked, await self._reader.texts(namespace, ask.agent, ranked.ids)

    async def _on_the_way(self, pending: list[Pending], query: Query) -> Floats:
        """Cosines of the memories the indexer has not come to yet; of the newest of them, NaN for the rest."""
        cosines = np.full(len(pending), np.nan)
        texts = [memory.text for memory in pending[:MAX_EMBEDDED_ON_THE_WAY]]
        if not texts or query.vector is None:
            return cosines
        try:
            async with asyncio.timeout(EMBED_SECONDS):
                vectors = await self._embedder.embed(texts)
        except (Unavailable, TimeoutError):
            return cosines
        cosines[: len(texts)] = [float(vector @ query.vector) for vector in vectors]
        return cosines

    def _remember(self, namespace: str, ask: Ask, retrieval_id: UUID, ranked: Ranked) -> None:
        features = ranked.z.astype("<f4").tobytes()
        now = datetime.now(UTC)
        shown = len(ranked.ids)
        self._log.add(
            namespace,
            Recalled(retrieval_id, ask.agent, ranked.ranker, shown, ranked.packed, features, ranked.chances, now),
        )


_STATIC = weight_vector(STATIC)


def _rank_kept(
    kept: Kept, view: View, ask: Ask, query: Query, pending: Sequence[Pending] = (), late: Floats | None = None
) -> Ranked:
    columns, cosines = view.columns, kept.cosines(view, query.vector)
    if pending and late is not None:
        columns = columns.append(light_of_pending(list(pending)))
        cosines = np.concatenate([cosines, late])
    return _rank("exact", ask, query, columns, cosines, kept.ranker)


def _rank(
    plan: str,
    ask: Ask,
    query: Query,
    columns: Columns,
    cosines: Any,
    learned: Ranker | None,
    population: Population | None = None,
) -> Ranked:
    found = signals(columns, cosines, query.hashes(), population)
    ranker, weights = _weights(ask, learned)
    scores = found.scores(weights)
    order: Rows = best(scores, columns.ids, ask.k + NEAR)
    # Only an agent that gets feedback explores, and never a question about the past or about other weights.
    if learned is not None and ask.at is None and ask.weights is None:
        places, explored = explore(len(order), ask.k, random.random(), random.random())
        order, chances = order[places], tuple(explored)
    else:
        chances = (1.0,) * min(ask.k, len(order)) + (0.0,) * max(len(order) - ask.k, 0)
    searched = population.size if population else len(columns)
    packed = columns.ids[order].tobytes()
    shown = min(ask.k, len(order))
    ids: list[UUID] = [PackedUUID(packed[start : start + 16]) for start in range(0, 16 * shown, 16)]
    return Ranked(plan, ranker, searched, ids, packed, scores[order], found.of(order), chances)


def _weights(ask: Ask, learned: Ranker | None) -> tuple[str, Floats]:
    if ask.weights is not None:
        return "request", weight_vector(ask.weights)
    if learned is not None and learned.active:
        return "learned", learned.vector()
    return "static", _STATIC


def _hits(ranked: Ranked, rows: Sequence[Any], k: int) -> list[Hit]:
    """Rows are id, type, content, importance, created, session, origin, pinned; one that is gone by now is left out."""
    found = {row[0]: row for row in rows}
    scores, z = np.round(ranked.scores[:k], 6).tolist(), np.round(ranked.z[:k], 6).tolist()
    hits = []
    for identity, score, values in zip(ranked.ids, scores, z, strict=True):
        row = found.get(identity)
        if row is not None:
            _, memory_type, content, importance, created, session, origin, pinned = row
            named = dict(zip(SIGNALS, values, strict=True))
            hits.append(
                Hit(
                    identity,
                    memory_type,
                    orjson.Fragment(content),
                    importance,
                    created,
                    score,
                    named,
                    session,
                    origin,
                    pinned,
                )
            )
    return hits
