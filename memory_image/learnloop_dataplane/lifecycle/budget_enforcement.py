"""Holds every agent to its memory budget, behind the stores: no store and no recall ever waits for it."""

from learnloop_api.wire.memory import MemoryBudget, MemoryUse
from learnloop_dataplane.concurrency.loop import Work
from learnloop_dataplane.lifecycle import budgets as budget_table
from learnloop_dataplane.lifecycle.budget_file import ToldBudgets
from learnloop_dataplane.lifecycle.budgets import Held, budgets, held, measured
from learnloop_dataplane.lifecycle.forgetting import forget
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres.database import Database

_NONE = MemoryBudget()


class BudgetKeeper:
    """One agent after the other, each in transactions of at most 500 memories.

    Args:
        limit: what every agent keeps within, whatever its own budget says.
        told: budgets of single agents, looked at before each pass.
    """

    def __init__(
        self,
        db: Database,
        metrics: Metrics,
        limit: MemoryBudget,
        told: ToldBudgets,
    ) -> None:
        self._db = db
        self._metrics = metrics
        self._limit = limit
        self._told = told
        self.work: Work | None = None
        """Turns of namespaces, once they have begun."""

    def limit(self, namespace: str, agent: str) -> MemoryBudget:
        """What an agent keeps within, whatever budget was put for it here."""
        return self._told.of(namespace).get(agent, _NONE).within(self._limit)

    def changed(self, namespace: str) -> None:
        """A budget of this namespace is new, or its agents keep much more than before."""
        if self.work is not None:
            self.work.changed(namespace)

    async def put(self, namespace: str, agent: str, budget: MemoryBudget) -> None:
        """From now on the agent keeps no more than this; the same again starts no pass.

        Raises:
            Unavailable: nothing was changed.
        """
        if await budget_table.put(self._db, namespace, agent, budget):
            self.changed(namespace)

    async def use(self, namespace: str, agent: str) -> MemoryUse:
        """What the agent may keep, and what it kept when that was last measured.

        Raises:
            ApiError: 404, it has no budget.
        """
        return await budget_table.use(self._db, namespace, agent, self.limit(namespace, agent))

    async def drop(self, namespace: str, agent: str) -> None:
        """Takes the agent's own budget back; what was forgotten stays forgotten.

        Raises:
            Unavailable: nothing was changed.
        """
        async with self._db.tenant(namespace) as connection:
            await budget_table.drop(connection, namespace, agent)

    async def keep(self, namespace: str) -> int:
        """One pass over a namespace; returns how many memories went.

        Raises:
            Unavailable: the rest goes the next time.
        """
        await self._told.look()
        everybody = self._limit != _NONE
        async with self._db.tenant(namespace) as connection:
            own = await budgets(connection, namespace)
            named = {*own, *self._told.of(namespace)}
            kept = await held(connection, namespace, None if everybody else named) if named or everybody else {}
        gone = 0
        for agent in sorted({*kept, *named}):
            budget = own.get(agent, _NONE).within(self.limit(namespace, agent))
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
