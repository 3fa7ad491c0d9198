"""After a restart: the agents that were asked lately are read before they are asked again."""

import logging

from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.recall.cached_agents import Reader

log = logging.getLogger(__name__)
MOST = 10_000  # agents that are looked at, in the order of their names
# Hops from one agent's newest recall to the next agent's: two look-ups in the index for an agent, however long the log.
_ASKED = """
WITH RECURSIVE known(agent_id, n) AS (
    (SELECT agent_id, 1 FROM recall_log WHERE namespace = $1 ORDER BY agent_id LIMIT 1)
    UNION ALL
    SELECT (SELECT r.agent_id FROM recall_log r WHERE r.namespace = $1 AND r.agent_id > k.agent_id
        ORDER BY r.agent_id LIMIT 1), k.n + 1
    FROM known k WHERE k.agent_id IS NOT NULL AND k.n < $2
)
SELECT k.agent_id FROM known k, LATERAL (SELECT r.created_at FROM recall_log r
    WHERE r.namespace = $1 AND r.agent_id = k.agent_id ORDER BY r.created_at DESC LIMIT 1) latest
WHERE latest.created_at > now() - interval '1 day' ORDER BY latest.created_at DESC
"""


async def warm(db: Database, reader: Reader) -> int:
    """Reads them, the latest first, as long as there is room for them; returns how many agents that were.

    Raises:
        Unavailable: PostgreSQL does not answer; the rest is read when it is asked.
    """
    done = 0
    for namespace in await db.namespaces():
        async with db.tenant(namespace) as connection:
            agents = [row["agent_id"] for row in await connection.fetch(_ASKED, namespace, MOST)]
        for agent in agents:
            if reader.full:
                break
            done += await reader.warm(namespace, agent)
    log.info("read the memories of %d agents that were asked lately", done)
    return done
