"""Every way in which memories come in: one by one, in batches, from an export."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from learnloop_dataplane.memories.memories_about_people import name_people, name_sources, store_many
from learnloop_dataplane.memories.memory_store import NewMemory
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.people import Users
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


@dataclass(frozen=True, slots=True)
class Imported:
    """How many memories of an export were new, how many were there already, and how many people did not want."""

    imported: int
    known: int
    opted_out: int


class MemoryWrites:
    """Stores memories of all agents.

    Args:
        stored: called with a namespace that has memories without a vector.
        grew: called with a namespace whose agents may keep much more than before.
    """

    def __init__(
        self,
        db: Database,
        users: Users,
        analyzer: Analyzer,
        stored: Callable[[str], None],
        grew: Callable[[str], None],
    ) -> None:
        self._db = db
        self._users = users
        self._analyzer = analyzer
        self._stored = stored
        self._grew = grew

    async def store(self, namespace: str, memory: NewMemory, user: str | None) -> StoredMemory:
        """Stores one memory; it is durable, and can be recalled, when this returns.

        Args:
            user: the person that it is about, as the application knows them; None: it is about no person.

        Raises:
            ApiError: 409, its key was used for something else.
            Unavailable: nothing was written.
        """
        batch = await self.store_batch(namespace, [memory], [user])
        return StoredMemory(batch.ids[0], bool(batch.duplicates), stored=not batch.opted_out)

    async def store_batch(
        self, namespace: str, memories: Sequence[NewMemory], users: Sequence[str | None]
    ) -> StoredBatch:
        """Stores all of them in one transaction, or none.

        Args:
            users: for each memory the person that it is about; None: no person.

        Raises:
            ApiError: 409, a key was used for something else.
            Unavailable: nothing was written.
        """
        await name_people(self._db, self._users, namespace, zip(memories, users, strict=True))
        done = await store_many(self._db, self._users, namespace, memories, self._analyzer)
        self._stored(namespace)
        return StoredBatch(
            ids=[one[0] if one is not None else None for one in done],
            duplicates=sum(one[1] for one in done if one is not None),
            opted_out=done.count(None),
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
            users: for each memory the person that it is about; None: no person.
            sources: for each memory the people from whose episodes it was distilled.

        Raises:
            ApiError: 409, a key was used for something else.
            Unavailable: nothing was written.
        """
        await name_people(self._db, self._users, namespace, zip(memories, users, strict=True))
        await name_sources(self._db, self._users, namespace, zip(memories, sources, strict=True))
        stored = await store_many(self._db, self._users, namespace, memories, self._analyzer)
        self._stored(namespace)
        self._grew(namespace)
        known = [done[1] for done in stored if done is not None]
        return Imported(known.count(False), known.count(True), stored.count(None))
