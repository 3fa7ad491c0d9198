"""Groups of agents that recall together: an agent may recall its group's memories, or those of its whole namespace.

A group is declared with the agents: by `PUT /api/v1/agents/{agent}`, which the operator sends for a LearningAgent, or
in the file by which it configures a MemoryService. No group reaches further than a namespace: row-level security shows
a statement no other one.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.postgres.database import Database

ScopeOfRecall = Literal["agent", "group", "namespace"]
MOST_MEMBERS = 500
_DECLARED = "SELECT name, memory_group FROM agents WHERE namespace = $1 AND memory_group IS NOT NULL"
AGENTS = """
    agents(agent_id) AS (
        (SELECT agent_id FROM agent_memories WHERE namespace = $1 ORDER BY agent_id LIMIT 1)
        UNION ALL
        SELECT (SELECT m.agent_id FROM agent_memories m WHERE m.namespace = $1 AND m.agent_id > k.agent_id
            ORDER BY m.agent_id LIMIT 1)
        FROM agents k WHERE k.agent_id IS NOT NULL
    )"""
"""For WITH RECURSIVE: the agents of namespace $1 that have memories, in order, and NULL last.

From one agent's first row to the next agent's: a look-up in the index for each, however many rows it has.
"""
_EVERYBODY = f"WITH RECURSIVE {AGENTS} SELECT agent_id FROM agents WHERE agent_id IS NOT NULL LIMIT $2"


class Groups:
    """Members of groups and namespaces.

    Args:
        file: groups of a namespace that came by a file, by agent.
    """

    def __init__(self, db: Database, file: Callable[[str], Mapping[str, str]]) -> None:
        self._db = db
        self._file = file

    async def members(self, namespace: str, agent: str, scope: ScopeOfRecall) -> list[str]:
        """The agents whose memories these are, in order; the agent itself is among them.

        Raises:
            Invalid: the agent is in no group, or there are too many of them.
            Unavailable: PostgreSQL does not answer.
        """
        agents = await (self._everybody(namespace) if scope == "namespace" else self._group(namespace, agent))
        agents.add(agent)
        if len(agents) > MOST_MEMBERS:
            raise Invalid(
                f"more than {MOST_MEMBERS} agents would be searched; put those that share memories into groups",
                field="scope",
                value=scope,
            )
        return sorted(agents)

    async def _everybody(self, namespace: str) -> set[str]:
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_EVERYBODY, namespace, MOST_MEMBERS + 1)
        return {row["agent_id"] for row in rows}

    async def _group(self, namespace: str, agent: str) -> set[str]:
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_DECLARED, namespace)
        # What the file says of an agent goes before: it is the LearningAgent's own word.
        groups = {row["name"]: row["memory_group"] for row in rows} | dict(self._file(namespace))
        group = groups.get(agent)
        if group is None:
            raise Invalid(
                "this agent is in no group; declare one by spec.memory.group of its LearningAgent, or by memory_group "
                "of PUT /api/v1/agents/{agent}",
                field="scope",
                value="group",
            )
        return {member for member, its in groups.items() if its == group}
