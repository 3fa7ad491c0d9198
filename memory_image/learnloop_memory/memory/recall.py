"""Recall: scan, score, rank, fetch. The answer says how it was found and why each memory is in it."""

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import orjson

from learnloop_memory.errors import Unavailable
from learnloop_memory.ids import uuid7
from learnloop_memory.memory.big import BigAgents
from learnloop_memory.memory.candidates import EXACT, Candidates, Floats, Query, pending_texts, unpack
from learnloop_memory.memory.embedder import Embedder
from learnloop_memory.memory.kinds import ALL_TYPES, MemoryType
from learnloop_memory.memory.log import Recalled, RecallLog
from learnloop_memory.memory.ranker import Ranker, explore
from learnloop_memory.memory.signals import SIGNALS, STATIC, Population, best, signals, weight_vector
from learnloop_memory.memory.text import words
from learnloop_memory.store.database import Database

log = logging.getLogger(__name__)
NEAR = 20  # hits that came close are logged too: a ranker that learns needs to know what it did not show
EMBED_SECONDS = 0.5
MAX_EMBEDDED_ON_THE_WAY = 256
_FETCH = """
SELECT m.id, m.memory_type, m.content, m.importance, m.created_at, m.session_id, m.origin, m.pinned
FROM set_config('app.namespace', $1, true) AS s(namespace),
LATERAL (SELECT * FROM agent_memories m WHERE m.namespace = s.namespace AND m.agent_id = $2 AND m.id = ANY($3::uuid[])
         OFFSET 0) m
"""


Found = tuple[str, Candidates, Population | None, Ranker | None]


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


@dataclass(frozen=True)
class Hit:
    """One recalled memory with the z-score of each signal and their weighted sum."""

    id: UUID
    memory_type: str
    content: Any
    importance: float
    created_at: str
    score: float
    signals: dict[str, float]
    session_id: str | None = None
    origin: str = ""
    pinned: bool = False


@dataclass(frozen=True)
class Recall:
    """The answer to one recall. `plan` says how it was found, `ranker` whose weights put it in order."""

    retrieval_id: UUID
    plan: str
    ranker: str
    searched: int
    memories: list[Hit]
    degraded: list[str] = field(default_factory=list)


class Recaller:
    """Answers recalls of all agents."""

    def __init__(self, db: Database, embedder: Embedder, log: RecallLog, big: BigAgents) -> None:
        self._db = db
        self._embedder = embedder
        self._log = log
        self._big = big

    async def recall(self, namespace: str, ask: Ask) -> Recall:
        """The k best memories of one agent for a text.

        Raises:
            Unavailable: PostgreSQL does not answer. Without the embedder the answer comes from the words alone.
        """
        query = await self._query(ask)
        plan, found, population, learned = await self._find(namespace, ask, query)
        now = (ask.at or datetime.now(UTC)).timestamp()
        z = signals(found, query.hashes(), now, population)
        ranker, weights = _weights(ask, learned)
        scores = z @ weights
        order = best(scores, found.ids, ask.k + NEAR)
        # Only an agent that gets feedback explores, and never a question about the past or about other weights.
        exploring = learned is not None and ask.at is None and ask.weights is None
        draw = random.random() if exploring else 1.0
        places, chances = explore(len(order), ask.k, draw, random.random())
        if not exploring:
            chances = [1.0 if place < ask.k else 0.0 for place in range(len(order))]
        order = order[places]
        ids = [found.uuid(index) for index in order]
        rows = {row["id"]: row for row in await self._db.fetch_as(namespace, _FETCH, ask.agent, ids[: ask.k])}
        hits = [
            _hit(rows[identity], scores[index], z[index])
            for identity, index in zip(ids[: ask.k], order, strict=False)
            if identity in rows
        ]
        retrieval_id = uuid7()
        if ask.weights is None and ask.at is None:
            self._remember(namespace, ask, retrieval_id, ranker, ids, z[order], chances)
        degraded = ["embedder"] if query.vector is None else []
        searched = population.size if population else len(found)
        return Recall(retrieval_id, plan, ranker, searched, hits, degraded)

    async def _query(self, ask: Ask) -> Query:
        vector: Any = None
        try:
            async with asyncio.timeout(EMBED_SECONDS):
                [vector] = await self._embedder.embed([ask.text])
        except (Unavailable, TimeoutError) as error:
            log.warning("recall goes by words only: %s", error or "the embedder takes too long")
        return Query(ask.text, words(ask.text), vector, self._embedder.name, ask.at, ask.types)

    async def _find(self, namespace: str, ask: Ask, query: Query) -> Found:
        if self._big.indexed(namespace, ask.agent) and ask.at is None:
            row, population = await self._big.find(namespace, ask.agent, query)
            return "hnsw", unpack(row, await self._on_the_way(row, query)), population, _learned(row)
        [row] = await self._db.fetch_as(namespace, EXACT, *query.arguments(namespace, ask.agent)[1:])
        return "exact", unpack(row, await self._on_the_way(row, query)), None, _learned(row)

    async def _on_the_way(self, row: Any, query: Query) -> dict[UUID, float]:
        """Cosines of the newest memories the indexer has not come to yet."""
        texts = pending_texts(row)[:MAX_EMBEDDED_ON_THE_WAY]
        if not texts or query.vector is None:
            return {}
        try:
            async with asyncio.timeout(EMBED_SECONDS):
                vectors = await self._embedder.embed([text for _, text in texts])
        except (Unavailable, TimeoutError):
            return {}
        return {identity: float(vector @ query.vector) for (identity, _), vector in zip(texts, vectors, strict=True)}

    def _remember(
        self, namespace: str, ask: Ask, retrieval_id: UUID, ranker: str, ids: list[UUID], z: Any, chances: list[float]
    ) -> None:
        shown = min(ask.k, len(ids))
        features = np.ascontiguousarray(z, dtype="<f4").tobytes()
        now = datetime.now(UTC)
        self._log.add(namespace, Recalled(retrieval_id, ask.agent, ranker, shown, ids, features, chances, now))


def _learned(row: Any) -> Ranker | None:
    """None for an agent that never got feedback."""
    return Ranker.from_state(orjson.loads(row["ranker"])) if row["ranker"] else None


def _weights(ask: Ask, learned: Ranker | None) -> tuple[str, Floats]:
    if ask.weights is not None:
        return "request", weight_vector(ask.weights)
    if learned is not None and learned.active:
        return "learned", learned.vector()
    return "static", weight_vector(STATIC)


def _hit(row: Any, score: float, z: Any) -> Hit:
    return Hit(
        id=row["id"],
        memory_type=row["memory_type"],
        content=orjson.loads(row["content"]),
        importance=row["importance"],
        created_at=row["created_at"].isoformat(),
        score=round(float(score), 6),
        signals={name: round(value, 6) for name, value in zip(SIGNALS, z.tolist(), strict=True)},
        session_id=row["session_id"],
        origin=row["origin"],
        pinned=row["pinned"],
    )
