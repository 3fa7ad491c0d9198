"""Every way in which memories come in: one by one, in batches, from an export.

One that is about a person is stored by pseudonym only, and not at all once that person opted out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from learnloop_dataplane.memories.memory_store import PEOPLE, USER, NewMemory, insert, known_ids
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.people import Users, hold_off
from learnloop_dataplane.text.analysis import Analyzer


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """Result of storing one memory. `id` is None, and `stored` false, where its person opted out."""

    id: UUID | None
    duplicate: bool
    stored: bool


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Result of storing a batch; `ids` in the order of the batch, None where a person opted out."""

    ids: list[UUID | None]
    duplicates: int
    opted_out: int


class MemoryWrites:
    """Stores memories of all agents. `users` are for each memory the person that it is about, as the application knows
    them, or None; a pseudonym stays what it is. All methods store everything in one transaction, or nothing.

    Args:
        stored: called with a namespace that has memories without a vector.

    Raises:
        ApiError: 409, a key was used for something else.
        Unavailable: nothing was written.
    """

    def __init__(
        self,
        db: Database,
        users: Users,
        analyzer: Analyzer,
        stored: Callable[[str], None],
    ) -> None:
        self._db = db
        self._users = users
        self._analyzer = analyzer
        self._stored = stored

    async def store(self, namespace: str, memory: NewMemory, user: str | None) -> StoredMemory:
        """Stores one memory; it is durable, and can be recalled, when this returns."""
        batch = await self.store_batch(namespace, [memory], [user])
        return StoredMemory(batch.ids[0], bool(batch.duplicates), stored=not batch.opted_out)

    async def store_batch(
        self,
        namespace: str,
        memories: Sequence[NewMemory],
        users: Sequence[str | None],
        sources: Sequence[Sequence[str]] | None = None,
    ) -> StoredBatch:
        """Stores many memories; what is there already is not stored again.

        Args:
            sources: for each memory the people from whose episodes it was distilled.
        """
        given = list(zip(memories, users, sources or [()] * len(memories), strict=True))
        async with self._db.tenant(namespace) as connection:
            out = await self.name_people(connection, namespace, given)
            ours = [memory for memory in memories if memory.id not in out]
            new = await insert(connection, namespace, ours, self._analyzer)
            there = await known_ids(connection, namespace, [memory for memory in ours if memory.id not in new])
        self._stored(namespace)
        return StoredBatch(
            ids=[None if memory.id in out else there.get(memory.id, memory.id) for memory in memories],
            duplicates=len(there),
            opted_out=len(out),
        )

    async def name_people(
        self, connection: Any, namespace: str, given: Sequence[tuple[NewMemory, str | None, Sequence[str]]]
    ) -> set[UUID]:
        """Writes pseudonyms into the memories; returns those that are about people who opted out.

        No person can opt out between this and the end of the caller's transaction: a memory that is written in it
        either comes after the opt-out and is not written, or is there when the opt-out erases.
        """
        named = {memory.id: {*([user] if user is not None else []), *people} for memory, user, people in given}
        everyone = set().union(*named.values())
        if not everyone:
            return set()
        await hold_off(connection, namespace)
        hashes = await self._users.hashes(connection, namespace, everyone)
        for memory, user, people in given:
            person = {USER: hashes[user]} if user is not None else {}
            behind = {PEOPLE: sorted({hashes[each] for each in people})} if people else {}
            if person or behind:
                memory.provenance = {**(memory.provenance or {}), **person, **behind}
        out = await self._users.opted_out(connection, namespace, hashes.values())
        return {identity for identity, people in named.items() if out.intersection(map(hashes.get, people))}
