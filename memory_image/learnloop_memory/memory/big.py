"""Agents with more memories than a scan should read: a vector store proposes the nearest of them.

The candidates are what it proposes, the memories with the query's rare words, those that came too late for either, and
the newest; they are read in PostgreSQL and ranked as always, with z-scores over the whole memory as far as it is known.
"""

import logging
from typing import Any

import numpy as np

from learnloop_memory.memory.candidates import CHOSEN, Query
from learnloop_memory.memory.rare_words import RARE, RareWords, frequencies, having
from learnloop_memory.memory.signals import Population
from learnloop_memory.store.database import Database
from learnloop_memory.vectors.pgvector import SETTINGS
from learnloop_memory.vectors.port import StoreAway, StoreLost, VectorStore

log = logging.getLogger(__name__)
Key = tuple[str, str]
# From this many on an index takes less time than PostgreSQL's looking at all of them.
SCANNED_UP_TO = 20_000
NEAREST, BY_WORDS, NEWEST = 200, 400, 300
LATE = 2_000  # more that the words do not know yet, and a scan is the surer way
_LARGE = "SELECT agent_id, count(*) AS n FROM memory_vec WHERE namespace = $1 GROUP BY agent_id HAVING count(*) > $2"
_NEWEST = """
SELECT id FROM agent_memories WHERE namespace = $1 AND agent_id = $2 ORDER BY created_at DESC, id DESC LIMIT $3
"""


class BigAgents:
    """Knows which agents the store proposes for, keeps it up to date, and searches with it."""

    def __init__(self, db: Database, store: VectorStore, *, above: int) -> None:
        self._db = db
        self._store = store
        self._above = above
        self._sizes: dict[Key, int] = {}
        self._held: set[Key] = set()
        self._troubled: set[Key] = set()
        self._words = RareWords(db)

    @property
    def plan(self) -> str:
        """What a recall through the store says it did."""
        return self._store.name

    def indexed(self, namespace: str, agent: str) -> bool:
        """Does the store hold this agent?"""
        return (namespace, agent) in self._held

    def troubled(self, namespace: str, agent: str) -> bool:
        """Should the store hold this agent, but did not answer when it was asked last?"""
        return (namespace, agent) in self._troubled

    async def run(self, namespace: str) -> int:
        """Finds the large agents of one namespace, has the store forget all others, and returns how many.

        Raises:
            Unavailable: PostgreSQL does not answer.
            StoreAway: the store does not.
        """
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_LARGE, namespace, self._above)
        large = {(namespace, row["agent_id"]): row["n"] for row in rows}
        self._sizes = {key: n for key, n in self._sizes.items() if key[0] != namespace} | large
        self._held &= self._sizes.keys()
        self._troubled &= self._sizes.keys()
        for agent in await self._store.known(namespace):
            if (namespace, agent) not in large:
                await self._words.forget(namespace, agent)
                await self._store.forget(namespace, agent)
        return len(large)

    async def follow(self, namespace: str) -> int:
        """Has the store hold every large agent as it is now; returns how many memories had changed.

        Raises: as for `run`; agents the store does not hold are scanned meanwhile.
        """
        return sum([await self._follow(*key) for key in sorted(self._sizes) if key[0] == namespace])

    async def _follow(self, namespace: str, agent: str) -> int:
        key = (namespace, agent)
        try:
            await self._words.follow(namespace, agent)
            changed = await self._store.follow(namespace, agent)
        except StoreAway:
            self._held.discard(key)
            self._troubled.add(key)
            raise
        if key in self._sizes:
            self._held.add(key)
            self._troubled.discard(key)
        return changed

    async def erased(self, namespace: str, agent: str | None) -> None:
        """Nothing of an erased agent is in the store, nor (None) any other memory that PostgreSQL no longer has.

        Raises: as for `run`; what was asked for is then not certain.
        """
        if agent is not None:
            self._held.discard((namespace, agent))
            await self._words.forget(namespace, agent)
            await self._store.forget(namespace, agent)
            return
        for known in await self._store.known(namespace):
            await self._store.follow(namespace, known)

    async def find(self, namespace: str, agent: str, query: Query) -> tuple[Any, Population]:
        """The memories worth ranking, packed, and what they were chosen from.

        Raises:
            Unavailable: PostgreSQL does not answer.
            StoreAway: the store does not, or is far behind what was stored; scan the agent.
        """
        near = await self._nearest(namespace, agent, query)
        words: list[int] = query.hashes().tolist()
        async with self._db.tenant(namespace) as connection:
            await connection.execute(SETTINGS)
            late = await self._words.late(connection, namespace, agent, LATE)
            if late is None:
                raise StoreAway(f"more than {LATE} memories of agent {agent} of {namespace} are not taken in yet")
            rows = await connection.fetch(_NEWEST, namespace, agent, NEWEST)
            counts = await frequencies(connection, namespace, agent, words)
            # The rarest first: more common ones would leave no place for the one memory that has them.
            rare = [word for count, word in sorted(zip(counts, words, strict=True)) if 0 < count < RARE]
            spoken = await having(connection, namespace, agent, rare, BY_WORDS) if rare else []
            chosen = list({*near, *spoken, *late, *(row[0] for row in rows)})
            row = await connection.fetchrow(CHOSEN, *query.arguments(namespace, agent), chosen)
        size = self._sizes.get((namespace, agent), len(chosen))
        return row, Population(size, np.array(counts, dtype=np.float64))

    async def _nearest(self, namespace: str, agent: str, query: Query) -> list[Any]:
        if query.vector is None:
            return []
        key = (namespace, agent)
        try:
            near = await self._store.nearest(namespace, agent, query, NEAREST)
        except StoreAway as error:
            log.warning("agent %s of %s is scanned: %s", agent, namespace, error)
            self._troubled.add(key)
            if isinstance(error, StoreLost):
                self._held.discard(key)  # until `follow` has filled it again
            raise
        self._troubled.discard(key)
        return [found.id for found in near]
