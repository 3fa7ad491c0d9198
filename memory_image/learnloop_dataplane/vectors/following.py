"""Keeps the vector store up to date, and knows whether it answers and how far it is behind."""

import time
from collections.abc import Callable

from learnloop_dataplane.errors import StoreAway, Unavailable
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.vectors.vector_store import VectorStore

PING_SECONDS = 10.0  # so that a store that is away is noticed before an agent becomes large


class Following:
    """One pass after the other, namespace by namespace.

    Args:
        store: None without an embedder: nothing to do.
        clock: seconds, monotonic.
    """

    def __init__(
        self, store: VectorStore | None, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._current: dict[str, float] = {}
        self._pinged = float("-inf")
        self._away = ""
        self._behind: dict[str, str] = {}

    @property
    def problem(self) -> str:
        """Why the store does not take what it should; empty while it does."""
        return self._away or next(iter(self._behind.values()), "")

    async def look(self) -> None:
        """Finds out now and then whether the store answers, also where no agent is large."""
        if self._store is None or (self._clock() - self._pinged < PING_SECONDS and not self._away):
            return
        try:
            await self._store.ping()
        except (Unavailable, StoreAway) as error:
            self._away = _sentence(error)
        else:
            self._away, self._pinged = "", self._clock()
        self._metrics.vectors_up.set(not self.problem)

    async def run(self, namespace: str) -> int:
        """Has the store take in what changed; returns how many memories that was.

        Raises:
            Unavailable: PostgreSQL does not answer.
            StoreAway: the store does not; PostgreSQL does its work until it does.
        """
        if self._store is None:
            return 0
        begun = self._clock()
        since = self._current.setdefault(namespace, begun)
        try:
            changed = await self._store.follow(namespace)
        except (Unavailable, StoreAway) as error:
            self._behind[namespace] = _sentence(error)
            self._metrics.vectors_up.set(0)
            self._metrics.vector_lag(namespace, self._clock() - since)
            raise
        self._behind.pop(namespace, None)
        self._current[namespace] = begun
        self._metrics.vectors_up.set(not self.problem)
        self._metrics.vector_lag(namespace, 0.0)
        return changed


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__
