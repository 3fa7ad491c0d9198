"""The nearest of an agent by looking at all of its vectors in PostgreSQL: exact, and half a microsecond for each."""

from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.ranking.candidates import Query
from learnloop_dataplane.vectors.vector_store import Near

# `find` and `scanned` are planned for the agent they ask for: a large one is worth parallel workers.
PLANNED = "SET LOCAL plan_cache_mode = force_custom_plan"
NEAREST = """
SELECT memory_id, -({vector} <#> $4) AS similarity FROM memory_vec
WHERE namespace = $1 AND agent_id = $2 AND embedder = $5 AND memory_type = ANY($3::smallint[])
    AND visible_from <= coalesce($6, now()) AND visible_to > coalesce($6, now())
ORDER BY {vector} <#> $4 LIMIT {limit}
"""


async def scanned(db: Database, namespace: str, agent: str, query: Query, k: int) -> list[Near]:
    """See VectorStore.nearest. No index is over the column as it is, so none is asked, whatever the planner thinks.

    Raises:
        Unavailable: PostgreSQL does not answer.
    """
    async with db.tenant(namespace) as connection:
        await connection.execute(PLANNED)
        rows = await connection.fetch(NEAREST.format(vector="embedding", limit=k), *query.arguments(namespace, agent))
    return [Near(row["memory_id"], row["similarity"]) for row in rows]
