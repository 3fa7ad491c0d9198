"""Which agents have rows in a table, without reading the rows."""


def known_agents(table: str) -> str:
    """`known(agent_id)` for WITH RECURSIVE: the agents of namespace $1 with rows in `table`, in order, and NULL last.

    From one agent's first row to the next agent's: a look-up in the index for each, however many rows it has. The index
    begins with (namespace, agent_id).
    """
    return f"""
    known(agent_id) AS (
        (SELECT agent_id FROM {table} WHERE namespace = $1 ORDER BY agent_id LIMIT 1)
        UNION ALL
        SELECT (SELECT m.agent_id FROM {table} m WHERE m.namespace = $1 AND m.agent_id > k.agent_id
            ORDER BY m.agent_id LIMIT 1)
        FROM known k WHERE k.agent_id IS NOT NULL
    )"""
