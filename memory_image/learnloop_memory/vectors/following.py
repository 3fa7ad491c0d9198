"""Keeps the vector store up to date, and knows whether it answers and how far it is behind."""

import time
from collections.abc import Callable

from learnloop_memory.errors import Unavailable
from learnloop_memory.memory.big import BigAgents
from learnloop_memory.metrics import Metrics
from learnloop_memory.vectors.port import StoreAway, VectorStore

PING_SECONDS = 10.0  # so that a store that is away is noticed before an agent becomes large


class Following:
    """One pass after the other, namespace by namespace.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(
        self, big: BigAgents, store: VectorStore, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._big = big
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._whole: dict[str, float] = {}
        self._pinged = float("-inf")
        self._away = ""
        self._behind: dict[str, str] = {}

    @property
    def problem(self) -> str:
        """Why the store does not take what it should; empty while it does."""
        return self._away or next(iter(self._behind.values()), "")

    async def look(self) -> None:
        """Finds out now and then whether the store answers, also where no agent is large."""
        if self._clock() - self._pinged < PING_SECONDS and not self._away:
            return
        try:
            await self._store.ping()
        except (Unavailable, StoreAway) as error:
            self._away = _said(error)
        else:
            self._away, self._pinged = "", self._clock()
        self._metrics.vectors_up.set(not self.problem)

    async def run(self, namespace: str) -> int:
        """Has the store take in what changed; returns how many memories that were.

        Raises:
            Unavailable: PostgreSQL does not answer.
            StoreAway: the store does not; large agents are scanned until it does.
        """
        begun = self._clock()
        since = self._whole.setdefault(namespace, begun)
        try:
            changed = await self._big.follow(namespace)
        except (Unavailable, StoreAway) as error:
            self._behind[namespace] = _said(error)
            self._metrics.vectors_up.set(0)
            self._metrics.vector_lag(namespace, self._clock() - since)
            raise
        self._behind.pop(namespace, None)
        self._whole[namespace] = begun
        self._metrics.vectors_up.set(not self.problem)
        self._metrics.vector_lag(namespace, 0.0)
        return changed


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
