"""The vector store port: the nearest memories of an agent too large to rank them all.

PostgreSQL is the system of record. A store may lag behind, and propose what has ended or was deleted since: recall
reads every proposed row in PostgreSQL, under row-level security, before it ranks it. A store that is late or wrong
costs recall, never truth.
"""

from typing import Any, Protocol
from uuid import UUID


class VectorStore(Protocol):
    """Finds by the vectors of one embedder. Every method but `ping` and `close` is about one namespace.

    All raise Unavailable when PostgreSQL does not answer, and StoreAway when the store itself does not.
    """

    async def nearest(self, namespace: str, agent: str, embedder: str, vector: Any, k: int) -> list[UUID]:
        """At most k memories, nearest first."""
        ...

    async def follow(self, namespace: str) -> int:
        """Takes in what was written for large agents, and removes what went; returns how many memories that were."""
        ...

    async def erased(self, namespace: str, agent: str | None) -> None:
        """The store has nothing of an erased agent, nor (None) any other memory that PostgreSQL no longer has."""
        ...

    async def ping(self) -> None:
        """Returns when the store takes requests."""
        ...

    async def close(self) -> None:
        """Closes its connections."""
        ...
