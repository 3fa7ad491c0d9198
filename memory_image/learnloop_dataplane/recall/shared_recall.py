"""Recall over several agents: one ranking of all their memories, for the one that asks.

As long as they have few enough together, one statement reads them all, in one snapshot, and every signal's z-score is
over all of them. Of more, each agent's own best are found as it finds them itself, and these are ranked together.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.ranking.candidates import (
    SCOPE,
    SHARED,
    SHARED_CHOSEN,
    SHARED_THEN,
    Pending,
    Query,
    cosines_of,
    light,
    light_of_pending,
    pending_of,
)
from learnloop_dataplane.ranking.columns import Floats
from learnloop_dataplane.ranking.learned_ranker import Ranker
from learnloop_dataplane.ranking.result_order import Ask, Ranked, rank
from learnloop_dataplane.text.analysis import Analyzer

TOGETHER = 20_000  # memories that PostgreSQL hands over for one question, in some tens of milliseconds
AT_ONCE = 4  # agents that are asked for their own best at a time
_COUNT = f"""SELECT x.n {SCOPE}, LATERAL (SELECT count(*)::int AS n FROM (SELECT 1 FROM memory_vec v
WHERE v.namespace = s.namespace AND v.agent_id = ANY($2::text[]) LIMIT $3) few) x"""
Alone = Callable[[str, Ask, Query], Awaitable[Ranked]]
Late = Callable[[list[Pending], Query], Awaitable[Floats]]


class SharedRecall:
    """Ranks the memories of several agents.

    Args:
        alone: ranks the memories of one of them, as when it is asked by itself.
        late: cosines of memories that the indexer has not come to yet.
        index: has the indexer come to them.
        together: how many memories are ranked without choosing among them first.
    """

    def __init__(
        self,
        db: Database,
        analyzer: Analyzer,
        alone: Alone,
        late: Late,
        index: Callable[[str], Awaitable[int]],
        together: int = TOGETHER,
    ) -> None:
        self._db = db
        self._analyzer = analyzer
        self._alone = alone
        self._late = late
        self._index = index
        self._together = together

    async def rank(self, namespace: str, ask: Ask, query: Query, agents: Sequence[str], many: int) -> Ranked:
        """The memories of these agents, one of which asks, in the order of their scores.

        Args:
            many: with so many memories waiting for the indexer it goes first.

        Raises:
            Invalid: the past of more memories than are ranked together.
            Unavailable: PostgreSQL does not answer.
        """
        [row] = await self._db.fetch_as(namespace, _COUNT, list(agents), self._together + 1)
        if row["n"] > self._together:
            if ask.at is not None:
                raise Invalid(
                    f"these agents have more than {self._together} memories together; ask one of them about the past",
                    field="as_of",
                    value=ask.at.isoformat(),
                )
            return await self._best_of_each(namespace, ask, query, agents)
        row = await self._read(namespace, ask, query, agents)
        if len(row["pending"] or ()) >= many:
            await self._index(namespace)
            row = await self._read(namespace, ask, query, agents)
        return await self._ranked("exact", ask, query, row)

    async def _read(self, namespace: str, ask: Ask, query: Query, agents: Sequence[str]) -> Any:
        statement = SHARED if ask.at is None else SHARED_THEN
        _, _, *rest = query.arguments(namespace, ask.agent)
        [row] = await self._db.fetch_as(namespace, statement, list(agents), *rest, ask.agent)
        return row

    async def _best_of_each(self, namespace: str, ask: Ask, query: Query, agents: Sequence[str]) -> Ranked:
        turns = asyncio.Semaphore(AT_ONCE)

        async def best(agent: str) -> Ranked:
            async with turns:
                return await self._alone(namespace, replace(ask, agent=agent, scope="agent"), query)

        found = await asyncio.gather(*map(best, agents))
        packed = b"".join(each.packed for each in found)
        ids = "{" + packed.hex(",", 16) + "}"
        _, _, *rest = query.arguments(namespace, ask.agent)
        [row] = await self._db.fetch_as(namespace, SHARED_CHOSEN, list(agents), *rest, ask.agent, ids)
        ranked = await self._ranked("merged", ask, query, row)
        return replace(ranked, searched=sum(each.searched for each in found))

    async def _ranked(self, plan: str, ask: Ask, query: Query, row: Any) -> Ranked:
        pending = pending_of(row, ask.types, self._analyzer)
        columns = light(row).append(light_of_pending(pending))
        cosines = np.concatenate([cosines_of(row), await self._late(pending, query)])
        return rank(plan, ask, query, columns, cosines, Ranker.from_text(row["ranker"]))
