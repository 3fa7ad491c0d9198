"""Keeps the vector store up to date, and knows whether it answers and how far it is behind."""

import time
from collections.abc import Awaitable, Callable

from learnloop_dataplane.errors import StoreAway, Unavailable
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.recall.large_agents import BigAgents
from learnloop_dataplane.vectors.vector_store import VectorStore

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
        self._behind: dict[tuple[str, str], str] = {}

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
            StoreAway: the store does not; PostgreSQL does its work until it does.
        """
        begun = self._clock()
        since = self._whole.setdefault(namespace, begun)
        try:
            changed = await self._tried(namespace, self._big.follow)
        except (Unavailable, StoreAway):
            self._metrics.vector_lag(namespace, self._clock() - since)
            raise
        self._whole[namespace] = begun
        self._metrics.vector_lag(namespace, 0.0)
        return changed

    async def fill(self, namespace: str) -> int:
        """Has the store take in agents it does not hold yet; returns how many memories that were.

        Raises: as for `run`.
        """
        return await self._tried(namespace, self._big.fill)

    async def _tried(self, namespace: str, step: Callable[[str], Awaitable[int]]) -> int:
        """The step, and what is known of the store after it."""
        what = (step.__name__, namespace)
        try:
            changed = await step(namespace)
        except (Unavailable, StoreAway) as error:
            self._behind[what] = _said(error)
            self._metrics.vectors_up.set(0)
            raise
        self._behind.pop(what, None)
        self._metrics.vectors_up.set(not self.problem)
        return changed


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
