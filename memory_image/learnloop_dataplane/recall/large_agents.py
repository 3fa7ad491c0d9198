"""Agents with more memories than the process ranks: only the most promising of them are read and ranked.

These are the nearest, the memories with the query's rare words, those that came too late for a look-up, and the newest;
they are read in PostgreSQL and ranked as always, with z-scores over the whole memory as far as it is known. The nearest
are told by PostgreSQL's looking at every vector as long as that is affordable, and by a vector store above. Until the
store is filled, which takes long, and while it is away, PostgreSQL does so for the largest, too. A walk through a graph
at times ends where none of the nearest are; one memory that is nearer than the tenth it found and was read for its
words shows it, and PostgreSQL looks at every vector after all.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import numpy as np

from learnloop_dataplane.errors import StoreAway, StoreLost
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.ranking.candidates import CHOSEN, Query, cosines_of
from learnloop_dataplane.ranking.relevance_signals import Population
from learnloop_dataplane.recall.rare_words import RARE, RareWords, frequencies, having
from learnloop_dataplane.vectors.exact_scan import PLANNED, scanned
from learnloop_dataplane.vectors.vector_store import Near, VectorStore

log = logging.getLogger(__name__)
Key = tuple[str, str]
# From this many on reading the nearest alone takes less time than reading all of them.
SCANNED_UP_TO = 20_000
NEAREST, BY_WORDS, NEWEST = 200, 400, 300
TOP = 10  # of the nearest: who is nearer than the last of these was overlooked
ROUNDING = 1e-3  # of cosines, by which halves and a store's own arithmetic may differ
SCANNED = "nearest"  # the plan where every vector was looked at
LATE = 2_000  # more that the words do not know yet, and a scan is the surer way
_LARGE = "SELECT agent_id, count(*) AS n FROM memory_vec WHERE namespace = $1 GROUP BY agent_id HAVING count(*) > $2"
_NEWEST = """
SELECT id FROM agent_memories WHERE namespace = $1 AND agent_id = $2 ORDER BY created_at DESC, id DESC LIMIT $3
"""


class BigAgents:
    """Knows who they are, keeps what finds their memories up to date, and searches with it.

    Args:
        above: how many memories the process ranks by itself.
        stored_above: up to so many memories PostgreSQL looks at every vector; above, the store proposes.
    """

    def __init__(self, db: Database, store: VectorStore, *, above: int, stored_above: int) -> None:
        self._db = db
        self._store = store
        self._above = above
        self._stored_above = max(above, stored_above)
        self._sizes: dict[Key, int] = {}
        self._held: set[Key] = set()
        self._filled: set[Key] = set()
        self._stored: set[Key] = set()
        self._troubled: set[Key] = set()
        self._words = RareWords(db)

    def ready(self, namespace: str, agent: str) -> bool:
        """Can this agent's most promising memories be told?"""
        return (namespace, agent) in self._held

    def troubled(self, namespace: str, agent: str) -> bool:
        """Should the store hold this agent, but did not answer when it was asked last?"""
        return (namespace, agent) in self._troubled

    async def run(self, namespace: str) -> int:
        """Finds the large agents of one namespace, has the store forget all it need not hold, and returns how many.

        Raises:
            Unavailable: PostgreSQL does not answer.
            StoreAway: the store does not.
        """
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_LARGE, namespace, self._above)
        large = {(namespace, row["agent_id"]): row["n"] for row in rows}
        self._sizes = {key: n for key, n in self._sizes.items() if key[0] != namespace} | large
        self._held &= self._sizes.keys()
        for keys in (self._filled, self._stored, self._troubled):
            keys &= {key for key in self._sizes if self._is_stored(key)}
        for agent in await self._words.known(namespace):
            if (namespace, agent) not in large:
                await self._words.forget(namespace, agent)
        for agent in await self._store.known(namespace):
            if not self._is_stored((namespace, agent)):
                await self._store.forget(namespace, agent)
        return len(large)

    def _is_stored(self, key: Key) -> bool:
        return self._sizes.get(key, 0) > self._stored_above

    async def fill(self, namespace: str) -> int:
        """Has the store take in the agents it does not hold yet; returns how many memories it had to change.

        This takes minutes for hundreds of thousands of memories, and hours where the store lacks the memory for them.

        Raises: as for `run`.
        """
        changed = 0
        for key in self._of(namespace):
            if self._is_stored(key) and key not in self._filled:
                with self._told(key):
                    changed += await self._store.follow(*key)
                self._filled.add(key)
        return changed

    async def follow(self, namespace: str) -> int:
        """Has words and store hold every large agent as it is now; returns how many memories the store had to change.

        The store's first filling is `fill`'s: nobody else waits for it.

        Raises: as for `run`.
        """
        return sum([await self._follow(key) for key in self._of(namespace)])

    async def _follow(self, key: Key) -> int:
        # First the words: what they do not know is late for both, and every question reads it.
        await self._words.follow(*key)
        if key in self._sizes:
            self._held.add(key)
        if key not in self._filled:
            return 0
        with self._told(key):
            changed = await self._store.follow(*key)
        if key in self._filled:
            self._stored.add(key)
        return changed

    @contextmanager
    def _told(self, key: Key) -> Iterator[None]:
        """Notes whether the store answers for this agent; one that did not is asked again when it followed."""
        try:
            yield
        except StoreAway as error:
            self._troubled.add(key)
            self._stored.discard(key)
            if isinstance(error, StoreLost):
                self._filled.discard(key)
            raise
        self._troubled.discard(key)

    def _of(self, namespace: str) -> list[Key]:
        return [key for key in sorted(self._sizes) if key[0] == namespace]

    async def erased(self, namespace: str, agent: str | None) -> None:
        """Nothing of an erased agent is in the store, nor (None) any other memory that PostgreSQL no longer has.

        Raises: as for `run`; what was asked for is then not certain.
        """
        if agent is not None:
            for keys in (self._held, self._filled, self._stored):
                keys.discard((namespace, agent))
            await self._words.forget(namespace, agent)
            await self._store.forget(namespace, agent)
            return
        for known in await self._store.known(namespace):
            await self._store.follow(namespace, known)

    async def find(self, namespace: str, agent: str, query: Query) -> tuple[str, Any, Population]:
        """The plan, the memories worth ranking, packed, and what they were chosen from.

        Raises:
            Unavailable: PostgreSQL does not answer.
            StoreAway: the words are far behind what was stored; scan the agent.
        """
        near = await self._proposed(namespace, agent, query)
        if near is not None:
            row, population, late = await self._chosen(namespace, agent, query, near)
            if query.vector is None or not overlooked(near, row, late):
                return self._store.name, row, population
        plan = SCANNED if near is None else self._store.name
        near = await self._scanned(namespace, agent, query)
        row, population, _ = await self._chosen(namespace, agent, query, near)
        return plan, row, population

    async def _chosen(
        self, namespace: str, agent: str, query: Query, near: Sequence[Near]
    ) -> tuple[Any, Population, list[UUID]]:
        """The nearest and all others worth ranking, packed; what they were chosen from; and who of them came late."""
        words: list[int] = query.hashes().tolist()
        async with self._db.tenant(namespace) as connection:
            await connection.execute(PLANNED)
            late = await self._words.late(connection, namespace, agent, LATE)
            if late is None:
                raise StoreAway(f"more than {LATE} memories of agent {agent} of {namespace} are not taken in yet")
            rows = await connection.fetch(_NEWEST, namespace, agent, NEWEST)
            counts = await frequencies(connection, namespace, agent, words)
            # The rarest first: more common ones would leave no place for the one memory that has them.
            rare = [word for count, word in sorted(zip(counts, words, strict=True)) if 0 < count < RARE]
            spoken = await having(connection, namespace, agent, rare, BY_WORDS) if rare else []
            chosen = list({*(found.id for found in near), *spoken, *late, *(row[0] for row in rows)})
            row = await connection.fetchrow(CHOSEN, *query.arguments(namespace, agent), chosen)
        size = self._sizes.get((namespace, agent), len(chosen))
        return row, Population(size, np.array(counts, dtype=np.float64)), late

    async def _scanned(self, namespace: str, agent: str, query: Query) -> list[Near]:
        return [] if query.vector is None else await scanned(self._db, namespace, agent, query, NEAREST)

    async def _proposed(self, namespace: str, agent: str, query: Query) -> list[Near] | None:
        """None where PostgreSQL has to look at every vector."""
        key = (namespace, agent)
        if key not in self._stored:
            return None
        if query.vector is None:
            return []
        try:
            with self._told(key):
                return await self._store.nearest(namespace, agent, query, NEAREST)
        except StoreAway as error:
            log.warning("every vector of agent %s of %s is looked at: %s", agent, namespace, error)
            return None


def overlooked(near: Sequence[Near], row: Any, late: Sequence[UUID]) -> bool:
    """Is one of these memories, which the store did not propose, nearer than the tenth that it did?

    Args:
        near: what it proposed, nearest first.
        row: memories by vector, words and age, packed.
        late: those of them that no store need know yet.
    """
    bar = near[min(TOP, len(near)) - 1].similarity + ROUNDING if near else -np.inf
    nearer = np.flatnonzero(cosines_of(row) > bar)  # of those without a vector, NaN, none is
    known = {found.id.bytes for found in near} | {identity.bytes for identity in late}
    ids = np.frombuffer(row["ids"] or b"", np.uint8).reshape(-1, 16)
    return any(ids[place].tobytes() not in known for place in nearer)
