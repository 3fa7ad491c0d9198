"""The vector store port: who is near, among the memories of an agent too large to be scanned at every recall.

PostgreSQL is the system of record. What a store holds follows from the rows of `memory_vec` and can be made anew from
them. So it may lag behind, and propose what has ended or was deleted since: recall reads every proposed row in
PostgreSQL, under row-level security, before it ranks it. A store that is late or wrong costs recall, never truth.
"""

from typing import NamedTuple, Protocol
from uuid import UUID

from learnloop_dataplane.ranking.candidates import Query


class Near(NamedTuple):
    """A memory and its inner product with the query, which for unit vectors is the cosine."""

    id: UUID
    similarity: float


class VectorStore(Protocol):
    """An index over one embedder's vectors in `memory_vec`. `name` is the `plan` that recalls through it report.

    Every method names one agent of one namespace: no call sees, changes or deletes anything of another.
    All raise Unavailable when PostgreSQL does not answer, and StoreAway when the store itself does not.
    """

    name: str

    async def follow(self, namespace: str, agent: str) -> int:
        """Takes in everything that was committed before the call, deletions too; filled from nothing where there is
        nothing. Repeating it is harmless. Returns how many memories had to be written or removed."""
        ...

    async def nearest(self, namespace: str, agent: str, query: Query, k: int) -> list[Near]:
        """At most k memories of the query's types that are visible at its instant (None: now), nearest first.

        Args:
            query: its vector must not be None; only vectors of its embedder are compared.
        """
        ...

    async def count(self, namespace: str, agent: str) -> int:
        """How many vectors of this agent the index holds, visible or not."""
        ...

    async def forget(self, namespace: str, agent: str) -> None:
        """Nothing of this agent is left in the store, whichever embedder made it; again is fine."""
        ...

    async def known(self, namespace: str) -> list[str]:
        """The agents of this namespace that the store holds something of, in order."""
        ...

    async def ping(self) -> None:
        """Returns when the store takes requests."""
        ...

    async def close(self) -> None:
        """Gives its connections back."""
        ...
