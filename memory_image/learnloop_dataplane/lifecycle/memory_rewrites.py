"""Work that reads or rewrites all of an agent's memory: one at a time for each agent, a few in a process.

Each piece of work tells the indexer what waits for it, and the keeper of budgets which namespaces may have grown.
"""

from collections.abc import Callable
from uuid import UUID

from learnloop_api.wire.memory import MemoryBudget
from learnloop_dataplane.concurrency.limits import OneEach
from learnloop_dataplane.lifecycle import forgetting, provenance, snapshots
from learnloop_dataplane.lifecycle.consolidation import Consolidated, consolidate
from learnloop_dataplane.lifecycle.distillation import Distiller
from learnloop_dataplane.lifecycle.retirement import pin
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.sliced_transactions import Progress
from learnloop_dataplane.text.analysis import Analyzer

HEAVY_AT_ONCE = 2  # of each kind: the processor and the pool of connections are everybody's


class MemoryRewrites:
    """Consolidation, forgetting, origins, restores and forks, as they are asked for.

    Args:
        distiller: makes facts and procedures of episodes.
        consolidations: shared with the passes that run by schedule.
        waiting: is told a namespace in which memories wait for the indexer.
        grew: is told a namespace whose agents may keep much more than before.
    """

    def __init__(
        self,
        db: Database,
        distiller: Distiller,
        analyzer: Analyzer,
        consolidations: OneEach,
        waiting: Callable[[str], None],
        grew: Callable[[str], None],
    ) -> None:
        self._db = db
        self._distiller = distiller
        self._analyzer = analyzer
        self._consolidations = consolidations
        self._forgettings = OneEach("forgetting", HEAVY_AT_ONCE)
        self._rewrites = OneEach("a fork, restore or rollback", HEAVY_AT_ONCE)
        self._waiting = waiting
        self._grew = grew

    async def consolidate(self, namespace: str, agent: str, *, dry_run: bool) -> Consolidated:
        """Ends duplicates and echoes, and distils episodes.

        Raises:
            ApiError: 429, this agent is being consolidated, or as many others as may be.
        """
        with self._consolidations.turn(namespace, agent):
            done = await consolidate(self._db, namespace, agent, self._distiller, self._analyzer, dry_run=dry_run)
        self._waiting(namespace)
        return done

    async def pin(self, namespace: str, identity: UUID, pinned: bool) -> None:
        """A pinned memory neither expires nor is forgotten.

        Raises:
            ApiError: 404, there is no such active memory.
        """
        async with self._db.tenant(namespace) as connection:
            await pin(connection, namespace, identity, pinned)

    async def forget(
        self, namespace: str, agent: str, budget: MemoryBudget, *, dry_run: bool
    ) -> forgetting.ForgottenMemories:
        """Forgets the least valuable memories above the budget.

        Raises:
            ApiError: 429, as for `consolidate`.
        """
        with self._forgettings.turn(namespace, agent):
            return await forgetting.forget(self._db, namespace, agent, budget, dry_run=dry_run)

    async def act_on_origin(
        self,
        namespace: str,
        origin: str,
        action: provenance.Action,
        progress: Progress,
        *,
        agent: str | None,
        dry_run: bool,
    ) -> provenance.Blast:
        """Quarantines, releases or rolls back what came from an origin; `agent` None: in the whole namespace.

        Raises:
            ApiError: 429, this agent is being rewritten, or as many others as may be.
        """
        with self._rewrites.turn(namespace, agent or "*"):
            return await provenance.act(self._db, namespace, origin, action, progress, agent=agent, dry_run=dry_run)

    async def restore(self, namespace: str, agent: str, name: str, progress: Progress) -> dict[str, int]:
        """Makes the agent's memory what it was when the snapshot was taken.

        Raises:
            ApiError: 404, there is no such snapshot; 429, as for `act_on_origin`.
        """
        with self._rewrites.turn(namespace, agent):
            done = await snapshots.restore(self._db, namespace, agent, name, progress)
        self._grew(namespace)
        return done

    async def fork(self, namespace: str, agent: str, name: str, into: str, progress: Progress) -> int:
        """Copies a snapshot into another agent, and returns how many memories that were.

        Raises:
            ApiError: 404, there is no such snapshot; 409, `into` has memories; 429, as for `act_on_origin`.
        """
        with self._rewrites.turn(namespace, into):
            copied = await snapshots.fork(self._db, namespace, agent, name, into, progress)
        self._waiting(namespace)
        self._grew(namespace)
        return copied
