"""Every way in which memories come in: one by one, in batches, from an export. Each tells whom it concerns.

The indexer learns which namespaces have memories that wait, and the keeper of budgets which namespaces grew by much.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID

from learnloop_dataplane.concurrency.large_work import is_large
from learnloop_dataplane.memories.grouped_writes import Writer
from learnloop_dataplane.memories.indexing_schedule import IndexPace
from learnloop_dataplane.memories.memories_about_people import about, name_people, name_sources, store_many
from learnloop_dataplane.memories.memory_store import NewMemory, life
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.people import Users
from learnloop_dataplane.ranking.memory_types import POLICIES

_THERE = """
SELECT id, extract(epoch FROM ends_at)::float8 AS ends, coalesce(provenance->>'user', '') AS about FROM agent_memories
WHERE namespace = $1 AND id = ANY($2::uuid[]) AND state = 'active' AND ends_at > now()
    AND greatest(created_at, valid_from) <= now()
"""


class ShownMemories(Protocol):
    """Knows what agents were shown lately."""

    def source_of(self, namespace: str, agent: str, content: dict[str, Any]) -> UUID | None:
        """The shown memory that this content repeats; None where it repeats none."""


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """What became of one memory. `id` is None, and `stored` false, where its person opted out."""

    id: UUID | None
    duplicate: bool
    echo: bool
    stored: bool


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """What became of a batch; `ids` in the order of the batch, None where a person opted out."""

    ids: list[UUID | None]
    duplicates: int
    echoes: int
    opted_out: int


@dataclass(frozen=True, slots=True)
class Imported:
    """How many memories of an export were new, how many were there already, and how many people did not want."""

    imported: int
    known: int
    opted_out: int


class MemoryWrites:
    """Stores memories of all agents.

    Args:
        shown: what agents were shown lately; what only repeats that is not stored.
        indexing: is told the namespaces in which memories wait for the indexer.
        grew: is told a namespace whose agents may keep much more than before.
    """

    def __init__(
        self,
        db: Database,
        users: Users,
        writer: Writer,
        shown: ShownMemories,
        indexing: IndexPace,
        grew: Callable[[str], None],
    ) -> None:
        self._db = db
        self._users = users
        self._writer = writer
        self._shown = shown
        self._indexing = indexing
        self._grew = grew

    def expect_batch(self) -> None:
        """A batch is on its way: the indexer lets it pass."""
        self._indexing.bulk()

    async def store(self, namespace: str, memory: NewMemory, user: str | None) -> StoredMemory:
        """Stores one memory; it is durable, and can be recalled, when this returns.

        Args:
            user: the person that it is about, as the application knows them; None: nobody.

        Raises:
            ApiError: 409, its key was used for something else.
            Unavailable: nothing was written.
        """
        await name_people(self._db, self._users, namespace, [(memory, user)])
        if source := (await self._echoes(namespace, [memory])).get(memory.id):
            return StoredMemory(source, duplicate=True, echo=True, stored=True)
        if user is None and not is_large():
            done: tuple[UUID, bool] | None = await self._writer.store(namespace, memory)
        else:
            [done] = await store_many(self._db, self._users, namespace, [memory])
            self._indexing.stored(namespace)
        if done is None:
            return StoredMemory(None, duplicate=False, echo=False, stored=False)
        identity, duplicate = done
        return StoredMemory(identity, duplicate, echo=False, stored=True)

    async def store_batch(
        self, namespace: str, memories: Sequence[NewMemory], users: Sequence[str | None]
    ) -> StoredBatch:
        """Stores all of them in one transaction, or none.

        Args:
            users: for each memory the person that it is about; None: nobody.

        Raises:
            ApiError: 409, a key was used for something else.
            Unavailable: nothing was written.
        """
        await name_people(self._db, self._users, namespace, zip(memories, users, strict=True))
        echoes = await self._echoes(namespace, memories)
        ours = [one for one in memories if one.id not in echoes]
        stored = await store_many(self._db, self._users, namespace, ours)
        self._indexing.stored(namespace)
        known = echoes | {one.id: done[0] for one, done in zip(ours, stored, strict=True) if done is not None}
        return StoredBatch(
            ids=[known.get(one.id) for one in memories],
            duplicates=sum(done[1] for done in stored if done is not None),
            echoes=len(echoes),
            opted_out=stored.count(None),
        )

    async def import_all(
        self,
        namespace: str,
        memories: Sequence[NewMemory],
        users: Iterable[str | None],
        sources: Iterable[Sequence[str]],
    ) -> Imported:
        """Stores the memories of an export in one transaction, or none; what is there already is not stored again.

        Args:
            users: for each memory the person that it is about; None: nobody.
            sources: for each memory the people from whose episodes it was distilled.

        Raises:
            ApiError: 409, a key was used for something else.
            Unavailable: nothing was written.
        """
        await name_people(self._db, self._users, namespace, zip(memories, users, strict=True))
        await name_sources(self._db, self._users, namespace, zip(memories, sources, strict=True))
        stored = await store_many(self._db, self._users, namespace, memories)
        self._indexing.stored(namespace)
        self._grew(namespace)
        known = [done[1] for done in stored if done is not None]
        return Imported(known.count(False), known.count(True), stored.count(None))

    async def _echoes(self, namespace: str, memories: Sequence[NewMemory]) -> dict[UUID, UUID]:
        """Which of these say what the agent was shown, and the memory that said it. That memory is still there, stays
        at least as long and is about the same person. An echo that names nobody is about whom the shown memory is
        about.
        """
        found: list[tuple[NewMemory, UUID]] = []
        for memory in memories:
            if not memory.pinned and POLICIES[memory.memory_type].consolidates:
                source = self._shown.source_of(namespace, memory.agent, memory.content)
                if source is not None:
                    found.append((memory, source))
        if not found:
            return {}
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_THERE, namespace, list({source for _, source in found}))
        there = {row["id"]: row for row in rows}
        now = datetime.now(UTC)
        return {
            memory.id: source
            for memory, source in found
            if (row := there.get(source)) is not None
            and about(memory) in ("", row["about"])
            and row["ends"] >= life(memory, now)[1].timestamp()
        }
