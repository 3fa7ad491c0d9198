"""Recall: read, rank, fetch the texts. The answer says why each memory is in it."""

import asyncio
import logging
from collections import ChainMap, Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce
from operator import add
from typing import Literal
from uuid import UUID

import orjson

from learnloop_dataplane.embedding.embedder import QuestionVectors
from learnloop_dataplane.errors import StoreAway, Unavailable
from learnloop_dataplane.postgres.database import Database, uuid7
from learnloop_dataplane.recall import memory_groups, memory_types, questions, ranking
from learnloop_dataplane.recall.candidates import FEW, MOST_TOGETHER, SCOPE, Candidates, Wanted
from learnloop_dataplane.stems import Analyzer

FLUSH_SECONDS = 1.0
MAX_WAITING = 20_000  # recalls of a namespace while the database is away for long
TOGETHER = 64  # recalls written at a time: recalls that are answered meanwhile wait a millisecond, not ten
# What was committed when the connection broke is written again, and counted again.
_INSERT = """
INSERT INTO recall_log (namespace, retrieval_id, agent_id, created_at, memory_ids)
SELECT $1, u.id, u.agent, u.at, u.ids::uuid[]
FROM unnest($2::uuid[], $3::text[], $4::timestamptz[], $5::text[]) AS u(id, agent, at, ids) ON CONFLICT DO NOTHING
"""
# In the order of the ids, so that two replicas wait for one another and never in a circle.
_COUNT = """
INSERT INTO memory_use (namespace, memory_id, access_count, last_accessed)
SELECT $1, u.id, u.n, now() FROM unnest($2::uuid[], $3::bigint[]) AS u(id, n) ORDER BY u.id
ON CONFLICT (namespace, memory_id) DO UPDATE
SET access_count = memory_use.access_count + excluded.access_count, last_accessed = excluded.last_accessed
"""


@dataclass(frozen=True, slots=True)
class Recalled:
    """One recall as it is logged, with the memories of the answer in their order."""

    retrieval_id: UUID
    agent: str
    ids: tuple[UUID, ...]
    at: datetime = field(default_factory=lambda: datetime.now(UTC))


class RecallLog:
    """Collects recalls and writes them once a second.

    A process that is killed loses a second of log and counts, never a memory and never an answer.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._waiting: dict[str, list[Recalled]] = defaultdict(list)
        self._writing = asyncio.Lock()

    def add(self, namespace: str, recalled: Recalled) -> None:
        """One more recall was answered; beyond the limit it is not logged."""
        if len(self._waiting[namespace]) < MAX_WAITING:
            self._waiting[namespace].append(recalled)

    async def write(self) -> None:
        """Writes the recalls that have collected.

        Raises:
            Exception: whatever PostgreSQL answered about one namespace; its recalls wait for the next time.
        """
        failed: Exception | None = None
        async with self._writing:
            for namespace in list(self._waiting):
                recalls = self._waiting[namespace]
                try:
                    while part := recalls[:TOGETHER]:
                        await self._store(namespace, part)
                        del recalls[: len(part)]
                except Exception as error:  # another namespace's may well be written
                    failed = error
        if failed:
            raise failed

    async def flush(self) -> None:
        """Writes what has collected; what the database does not take now waits for the next time."""
        try:
            await self.write()
        except Unavailable as error:
            log.info("recalls wait to be logged: %s", error)

    async def _store(self, namespace: str, recalls: list[Recalled]) -> None:
        records = [
            (each.retrieval_id, each.agent, each.at, "{" + ",".join(map(str, each.ids)) + "}") for each in recalls
        ]
        uses = Counter(identity for each in recalls for identity in each.ids)
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_INSERT, namespace, *(list(column) for column in zip(*records, strict=True)))
            await connection.execute(_COUNT, namespace, list(uses), list(uses.values()))


log = logging.getLogger(__name__)
AT_ONCE = 4  # agents whose own best are looked for at a time
OWN_BEST = 30  # of each agent, where several have too many to rank them all
_TEXTS = f"""
SELECT m.* {SCOPE}, LATERAL (SELECT id, memory_type, content, importance, created_at, session_id, origin, pinned,
    agent_id, speaker FROM agent_memories m
    WHERE m.namespace = s.namespace AND m.agent_id = ANY($2::text[]) AND m.id = ANY($3::uuid[]) OFFSET 0) m
"""


@dataclass(frozen=True)
class Ask:
    """One question to one agent's memory.

    Attributes:
        at: answer as the agent would have answered at this instant.
        scope: whose memories: the agent's own, those of its group, or those of all agents of the namespace.
        logged: whether its outcome may teach; a recall that only looks leaves nothing behind.
    """

    agent: str
    text: str
    k: int = 10
    types: tuple[memory_types.MemoryType, ...] = memory_types.ALL_TYPES
    at: datetime | None = None
    scope: memory_groups.ScopeOfRecall = "agent"
    logged: bool = True


@dataclass  # not frozen: a recall makes ten of them
class Hit:
    """One recalled memory; `content` is JSON already, `why` is one word."""

    id: UUID
    memory_type: str
    content: orjson.Fragment
    importance: float
    created_at: datetime
    score: float
    why: str
    session_id: str | None = None
    origin: str = ""
    pinned: bool = False
    agent_id: str = ""
    speaker: str = ""


@dataclass(slots=True)
class Recall:
    """The answer to one recall. `plan` says whether everything was ranked, or a choice; `searched` of how many."""

    retrieval_id: UUID
    plan: Literal["exact", "chosen"]
    searched: int
    memories: list[Hit]
    degraded: list[str] = field(default_factory=list)


class Recaller:
    """Answers recalls of all agents."""

    def __init__(
        self,
        db: Database,
        analyzer: Analyzer,
        vectors: QuestionVectors,
        candidates: Candidates,
        groups: memory_groups.Groups,
        log: RecallLog,
    ) -> None:
        self._db, self._analyzer, self._vectors = db, analyzer, vectors
        self._candidates, self._groups, self._log = candidates, groups, log

    async def recall(self, namespace: str, ask: Ask) -> Recall:
        """The k best memories of one agent, or of several, for a text.

        Raises:
            Invalid: the agent recalls with a group, but is in none; or with too many agents.
            Unavailable: PostgreSQL does not answer. Without the embedder the answer comes from the words alone.
        """
        agents = [ask.agent]
        if ask.scope != "agent":
            agents = await self._groups.members(namespace, ask.agent, ask.scope)
        question = questions.question_of(ask.text, self._analyzer)
        name, vector, degraded = await self._vectors.of(namespace, ask.text)
        wanted = Wanted(namespace, agents, ask.types, ask.at, vector, name)
        try:
            memories, population = await self._read(wanted, question, ask.k)
        except StoreAway as error:
            log.warning("the vector store does not answer, words choose the memories to rank: %s", error)
            degraded.append("vector store")
            memories, population = await self._read(Wanted(namespace, agents, ask.types, ask.at), question, ask.k)
        best = await _ranked(memories, question, ask.k, population)
        ids = [UUID(bytes=memories.ids[row].tobytes()) for row in best.rows]
        rows = {row[0]: row for row in await self._db.fetch_as(namespace, _TEXTS, agents, ids)}
        hits = [
            Hit(row[0], row[1], orjson.Fragment(row[2]), row[3], row[4], score, why, *row[5:10])
            for identity, score, why in zip(ids, best.scores, best.why, strict=True)
            if (row := rows.get(identity)) is not None
        ]
        retrieval_id = uuid7()
        if ask.logged and ask.at is None:
            self._log.add(namespace, Recalled(retrieval_id, ask.agent, tuple(hit.id for hit in hits)))
        searched = population.size if population else len(memories)
        return Recall(retrieval_id, "chosen" if population else "exact", searched, hits, degraded)

    async def _read(
        self, wanted: Wanted, question: ranking.Question, k: int
    ) -> tuple[ranking.Memories, ranking.Population | None]:
        if len(wanted.agents) > 1:
            sizes = await self._candidates.sizes(wanted.namespace, wanted.agents)
            if sum(sizes.values()) > MOST_TOGETHER:
                return await self._best_of_each(wanted, question, list(sizes), k)
        return await self._candidates.read(wanted, question)

    async def _best_of_each(
        self, wanted: Wanted, question: ranking.Question, agents: Sequence[str], k: int
    ) -> tuple[ranking.Memories, ranking.Population]:
        """Each agent's own best, to be ranked together."""
        turns = asyncio.Semaphore(AT_ONCE)
        most = max(OWN_BEST, k)

        async def best(agent: str) -> tuple[dict[UUID, int], ranking.Population]:
            async with turns:
                own = Wanted(wanted.namespace, [agent], wanted.types, wanted.at, wanted.vector, wanted.embedder)
                memories, population = await self._candidates.read(own, question)
                rows = (await _ranked(memories, question, most, population)).rows
            kinds = {UUID(bytes=memories.ids[row].tobytes()): int(memories.kinds[row]) for row in rows}
            return kinds, population or ranking.Population.of(memories, question)

        each = await asyncio.gather(*map(best, agents))
        memories = await self._candidates.named(wanted, dict(ChainMap(*(kinds for kinds, _ in each))))
        return memories, reduce(add, (population for _, population in each))


async def _ranked(
    memories: ranking.Memories, question: ranking.Question, k: int, population: ranking.Population | None
) -> ranking.Answer:
    if len(memories) > FEW:
        return await asyncio.to_thread(ranking.rank, memories, question, k, population)
    return ranking.rank(memories, question, k, population)
