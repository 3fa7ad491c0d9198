"""Consolidates by itself: every so often, each agent that has enough new memories, one at a time, behind the recalls.

Any number of processes may try: whoever holds the lock works, for the time of one agent's pass.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import asdict

from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.concurrency.limits import OneEach
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.lifecycle.consolidation import Consolidated, pass_over
from learnloop_dataplane.lifecycle.distillation import Distiller
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.postgres.agents_in_table import known_agents
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.text.analysis import Analyzer

log = logging.getLogger(__name__)
ENOUGH = 20  # new memories of an agent: fewer hardly change what a task is like, and each pass reads all there are
MOST_AGENTS = 100  # of a namespace in one look, so that a namespace with many does not keep the others waiting
PAUSE_SECONDS = 0.5  # between two agents
# Of each agent no more is read than it takes to tell.
_DUE = f"""
WITH RECURSIVE {known_agents("agent_memories")}
SELECT k.agent_id FROM known k
LEFT JOIN memory_consolidations c ON c.namespace = $1 AND c.agent_id = k.agent_id
WHERE k.agent_id IS NOT NULL AND ($4::text IS NULL OR k.agent_id = $4)
    AND coalesce(c.consolidated_at, '-infinity') <= now() - make_interval(secs => $2)
    AND $3 = (SELECT count(*) FROM (
        SELECT FROM agent_memories m
        WHERE m.namespace = $1 AND m.agent_id = k.agent_id AND m.created_at > coalesce(c.consolidated_at, '-infinity')
            AND m.state = 'active' AND m.source <> 'consolidation' AND m.memory_type <> 'working' LIMIT $3) new)
ORDER BY c.consolidated_at NULLS FIRST, k.agent_id
"""
_ALONE = "SELECT pg_try_advisory_xact_lock(hashtextextended('consolidation', 8))"


class Routine:
    """One pass after the other.

    Args:
        every: seconds between two passes over the same agent.
        turns: shared with the passes that are asked for.
        stored: called with a namespace that has new memories.
    """

    def __init__(
        self,
        db: Database,
        distiller: Distiller,
        analyzer: Analyzer,
        metrics: Metrics,
        every: float,
        turns: OneEach,
        stored: Callable[[str], None],
    ) -> None:
        self._db = db
        self._distiller = distiller
        self._analyzer = analyzer
        self._metrics = metrics
        self._every = every
        self._turns = turns
        self._stored = stored

    async def run(self, namespace: str) -> int:
        """Every agent of the namespace whose turn it is; returns how many this process has seen to.

        Raises:
            Unavailable: the rest is found again the next time.
        """
        async with self._db.tenant(namespace) as connection:
            due = [row["agent_id"] for row in await connection.fetch(_DUE, namespace, self._every, ENOUGH, None)]
        done = 0
        self._metrics.consolidations_due(namespace, len(due))
        for place, agent in enumerate(due[:MOST_AGENTS], 1):
            try:
                with self._turns.turn(namespace, agent):
                    found = await self._one(namespace, agent)
            except ApiError as error:
                if error.status != 429:
                    raise
                found = None  # somebody asked for it just now
            if found is not None:
                done += 1
                self._metrics.consolidated(namespace, found.duplicates + found.echoes, found.distilled)
                self._stored(namespace)
            self._metrics.consolidations_due(namespace, len(due) - place)
            await asyncio.sleep(PAUSE_SECONDS)
        return done

    async def _one(self, namespace: str, agent: str) -> Consolidated | None:
        """None: somebody else is at it, or has been meanwhile."""
        started = time.monotonic()
        async with self._db.tenant(namespace) as connection:
            if not await connection.fetchval(_ALONE):
                return None
            if not await connection.fetch(_DUE, namespace, self._every, ENOUGH, agent):
                return None
            found = await pass_over(connection, namespace, agent, self._distiller, self._analyzer)
            if found is None:
                return None
            said = {
                name: value
                for name, value in asdict(found).items()
                if name in ("looked_at", "duplicates", "echoes", "left", "distilled")
            }
            await note(connection, namespace, "memory.consolidation", f"agent/{agent}", said)
        log.info("consolidated %s/%s in %.1f s: %s", namespace, agent, time.monotonic() - started, said)
        return found
