"""Recall: find, score, rank, fetch. The answer says how it was found and why each memory is in it."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np

from learnloop_dataplane.embedding.embedder import Embedder
from learnloop_dataplane.errors import StoreAway, Unavailable
from learnloop_dataplane.memories.indexer import Indexer
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.row_ids import uuid7
from learnloop_dataplane.ranking.candidates import (
    EXACT,
    EXACT_THEN,
    MOST_PENDING,
    Pending,
    Query,
    cosines_of,
    light,
    light_of_pending,
    pending_of,
)
from learnloop_dataplane.ranking.columns import Floats
from learnloop_dataplane.ranking.learned_ranker import Ranker
from learnloop_dataplane.ranking.relevance_signals import Population
from learnloop_dataplane.ranking.result_order import Ask, Ranked, Recall, hits_of, rank, rank_kept
from learnloop_dataplane.recall.cached_agents import Reader
from learnloop_dataplane.recall.echo_gate import RecentlyShown
from learnloop_dataplane.recall.large_agents import BigAgents
from learnloop_dataplane.recall.memory_groups import Groups
from learnloop_dataplane.recall.recall_log import Recalled, RecallLog
from learnloop_dataplane.recall.shared_recall import SharedRecall
from learnloop_dataplane.text.analysis import Analyzer

log = logging.getLogger(__name__)
EMBED_SECONDS = 0.5  # that a recall waits for a vector, unless told otherwise
MAX_EMBEDDED_ON_THE_WAY = 256


class Recaller:
    """Answers recalls of all agents."""

    def __init__(
        self,
        db: Database,
        analyzer: Analyzer,
        embedder: Embedder,
        log: RecallLog,
        shown: RecentlyShown,
        big: BigAgents,
        reader: Reader,
        indexer: Indexer,
        groups: Groups,
        *,
        embed_seconds: float = EMBED_SECONDS,
    ) -> None:
        self._embed_seconds = embed_seconds
        self._db = db
        self._shown = shown
        self._indexer = indexer
        self._groups = groups
        self._shared = SharedRecall(db, analyzer, self._best, self._on_the_way, indexer.run)
        self._analyzer = analyzer
        self._embedder = embedder
        self._log = log
        self._big = big
        self._reader = reader

    async def recall(self, namespace: str, ask: Ask) -> Recall:
        """The k best memories of one agent, or of several, for a text.

        Raises:
            Invalid: the agent recalls with a group, but is in none; or with too many agents.
            Unavailable: PostgreSQL does not answer. Without the embedder the answer comes from the words alone.
        """
        arrived = time.monotonic()
        query = await self._query(ask)
        if ask.scope != "agent":
            agents = await self._groups.members(namespace, ask.agent, ask.scope)
            ranked = await self._shared.rank(namespace, ask, query, agents, MOST_PENDING // 2)
            rows = await self._reader.texts(namespace, agents, ranked.ids)
        else:
            ranked, rows = await self._alone(namespace, ask, query, arrived)
        retrieval_id = uuid7()
        self._shown.add(namespace, ask.agent, ((row[0], row[2]) for row in rows))
        if ask.weights is None and ask.at is None:
            # In the loop's next turn: the answer is on its way by then.
            asyncio.get_running_loop().call_soon(self._remember, namespace, ask, retrieval_id, ranked)
        degraded = ["embedder"] if query.vector is None else []
        if ask.at is None and self._big.troubled(namespace, ask.agent):
            degraded.append("vector store")
        return Recall(retrieval_id, ranked.plan, ranked.ranker, ranked.searched, hits_of(ranked, rows, ask.k), degraded)

    async def _alone(self, namespace: str, ask: Ask, query: Query, arrived: float) -> tuple[Ranked, Sequence[Any]]:
        if ask.at is not None or self._big.ready(namespace, ask.agent):
            return await self._scanned(namespace, ask, query)
        return await self._kept(namespace, ask, query, arrived)

    async def _best(self, namespace: str, ask: Ask, query: Query) -> Ranked:
        ranked, _ = await self._alone(namespace, ask, query, time.monotonic())
        return ranked

    async def _query(self, ask: Ask) -> Query:
        vector: Any = None
        try:
            if self._embedder.instant:
                [vector] = await self._embedder.embed([ask.text])
            else:
                async with asyncio.timeout(self._embed_seconds):
                    [vector] = await self._embedder.embed([ask.text])
        except (Unavailable, TimeoutError) as error:
            log.warning("recall goes by words only: %s", error or "the embedder takes too long")
        return Query(
            ask.text,
            self._analyzer.terms(ask.text),
            vector,
            self._embedder.name,
            ask.at,
            ask.types,
            self._embedder.trust,
        )

    async def _kept(self, namespace: str, ask: Ask, query: Query, arrived: float) -> tuple[Ranked, Sequence[Any]]:
        """Ranks what is kept and asks, together with the texts, whether it was still true; if not, once more."""
        kept = self._reader.peek(namespace, ask.agent)
        if kept is not None:
            view = kept.view(query.kinds(), kept.now())
            ranked = rank_kept(kept, view, ask, query)
            found = await self._reader.check(namespace, ask.agent, kept, ranked.ids)
            if not found.changed and view.since <= found.now < view.until:
                return ranked, found.rows
        kept = await self._reader.fresh(namespace, ask.agent, arrived)
        if kept is not None and _many(kept.pending):
            await self._indexer.run(namespace)
            kept = await self._reader.fresh(namespace, ask.agent, time.monotonic())
        if kept is None:
            return await self._scanned(namespace, ask, query)
        pending = pending_of({"pending": kept.pending}, ask.types, self._analyzer)
        late = await self._on_the_way(pending, query)
        ranked = rank_kept(kept, kept.view(query.kinds(), kept.now()), ask, query, pending, late)
        return ranked, await self._reader.texts(namespace, [ask.agent], ranked.ids)

    async def _scanned(self, namespace: str, ask: Ask, query: Query) -> tuple[Ranked, Sequence[Any]]:
        """Has PostgreSQL read the memories for this one question."""
        plan, row, population = await self._found(namespace, ask, query)
        if _many(row["pending"]):  # besides, there may be more than were read
            await self._indexer.run(namespace)
            plan, row, population = await self._found(namespace, ask, query)
        pending = pending_of(row, ask.types, self._analyzer)
        columns = light(row).append(light_of_pending(pending))
        cosines = np.concatenate([cosines_of(row), await self._on_the_way(pending, query)])
        ranked = rank(plan, ask, query, columns, cosines, Ranker.from_text(row["ranker"]), population)
        return ranked, await self._reader.texts(namespace, [ask.agent], ranked.ids)

    async def _found(self, namespace: str, ask: Ask, query: Query) -> tuple[str, Any, Population | None]:
        """The plan, what it found, and what that was chosen from; None for everything."""
        if self._big.ready(namespace, ask.agent) and ask.at is None:
            with suppress(StoreAway):  # an answer that is slow, but whole
                return await self._big.find(namespace, ask.agent, query)
        statement = EXACT if ask.at is None else EXACT_THEN
        [row] = await self._db.fetch_as(namespace, statement, *query.arguments(namespace, ask.agent)[1:])
        return "exact", row, None

    async def _on_the_way(self, pending: list[Pending], query: Query) -> Floats:
        """Cosines of the memories the indexer has not come to yet; of the newest of them, NaN for the rest."""
        cosines = np.full(len(pending), np.nan)
        texts = [memory.text for memory in pending[:MAX_EMBEDDED_ON_THE_WAY]]
        if not texts or query.vector is None:
            return cosines
        try:
            async with asyncio.timeout(self._embed_seconds):
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


def _many(pending: Sequence[Any] | None) -> bool:
    """Just after a large import: indexing them now takes as long as ranking them unindexed a few times."""
    return len(pending or ()) >= MOST_PENDING // 2
