"""Holds every agent to its memory budget, behind the stores: no store and no recall ever waits for it."""

import asyncio
import logging
from contextlib import suppress

from learnloop_api.wire.memory import MemoryBudget
from learnloop_memory.errors import Unavailable
from learnloop_memory.life.budgets import Held, budgets, held, measured
from learnloop_memory.life.forgetting import forget
from learnloop_memory.metrics import Metrics
from learnloop_memory.store.database import Database

log = logging.getLogger(__name__)
PAUSE_SECONDS = 1.0
"""Between two passes, however many budgets are put meanwhile."""


class BudgetKeeper:
    """One agent after the other, each in transactions of at most 500 memories.

    Args:
        limit: what every agent keeps within, whatever its own budget says.
        every: seconds between two passes over everything; a new budget is seen to at once.
    """

    def __init__(self, db: Database, metrics: Metrics, limit: MemoryBudget, every: float) -> None:
        self._db = db
        self._metrics = metrics
        self.limit = limit
        self._every = every
        self._new: set[str] = set()
        self._nudge = asyncio.Event()

    def changed(self, namespace: str) -> None:
        """A budget of this namespace is new."""
        self._new.add(namespace)
        self._nudge.set()

    async def run(self) -> None:
        """For ever."""
        await self._db.ready.wait()
        while True:
            todo, self._new = self._new, set()
            with suppress(Unavailable):
                for namespace in sorted(todo) or await self._db.namespaces():
                    await self._try(namespace)
            await asyncio.sleep(min(PAUSE_SECONDS, self._every))
            self._nudge.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if self._new else self._every):
                    await self._nudge.wait()

    async def _try(self, namespace: str) -> None:
        try:
            await self.keep(namespace)
        except Unavailable as error:
            log.info("the memory budgets of %s wait: %s", namespace, error)
        except Exception:  # one namespace's bad data must not stop the others; the next pass tries again
            log.exception("the memory budgets of namespace %s could not be kept", namespace)

    async def keep(self, namespace: str) -> int:
        """One pass over a namespace; returns how many memories went.

        Raises:
            Unavailable: the rest goes the next time.
        """
        everybody = self.limit != MemoryBudget()
        async with self._db.tenant(namespace) as connection:
            own = await budgets(connection, namespace)
            kept = await held(connection, namespace, None if everybody else own) if own or everybody else {}
        gone = 0
        for agent in sorted({*kept, *own}):
            budget = own[agent].within(self.limit) if agent in own else self.limit
            gone += await self._agent(namespace, agent, budget, kept.get(agent) or Held())
        return gone

    async def _agent(self, namespace: str, agent: str, budget: MemoryBudget, kept: Held) -> int:
        gone = 0
        if kept.exceeds(budget):
            gone = (await forget(self._db, namespace, agent, budget)).forgotten
        async with self._db.tenant(namespace) as connection:
            if gone:
                kept = (await held(connection, namespace, [agent])).get(agent) or Held()
            await measured(connection, namespace, agent, kept, budget, gone)
        self._metrics.budget(namespace, agent, kept.memories, kept.bytes, gone)
        return gone
