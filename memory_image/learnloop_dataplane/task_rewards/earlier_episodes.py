"""How an episode stands among the agent's earlier successful ones of the same task type."""

from learnloop_api.kinds.evaluators import OwnHistory
from learnloop_dataplane.evaluators.evaluator import Case, History, Standing
from learnloop_dataplane.postgres.database import Database

LOOKED_AT = 5000
"""The agent's newest episodes of any type, among which those of one type are found."""
# `seq` is the order of arrival; an episode that is not stored comes after all of them.
_STANDING = """
SELECT count(*) AS episodes, count(*) FILTER (WHERE needed > $6::float8) AS more,
    count(*) FILTER (WHERE needed = $6::float8) AS equal
FROM (
    SELECT {needed} AS needed FROM (
        SELECT * FROM trajectories t
        WHERE t.namespace = $1 AND t.agent_id = $2 AND ($4::bigint IS NULL OR t.seq < $4)
        ORDER BY t.seq DESC LIMIT $8) t
    LEFT JOIN LATERAL (SELECT r.task_type FROM task_results r
        WHERE r.namespace = $1 AND r.trajectory_id = t.trajectory_id OFFSET 0) r ON true
    WHERE coalesce(r.task_type, '') = $3 AND t.success AND {needed} IS NOT NULL AND $7::text IS NOT NULL
    ORDER BY t.seq DESC LIMIT $5) earlier
"""
_NEEDED = {
    "steps": "t.steps",
    "seconds": "extract(epoch FROM t.ended_at - t.started_at)",
    "value": "(CASE jsonb_typeof(t.outcome_values -> $7) WHEN 'number' THEN (t.outcome_values ->> $7)::float8 END)",
}


def history_of(db: Database, namespace: str) -> History:
    """What the evaluator `own-history` asks, in one namespace."""

    async def standing(case: Case, settings: OwnHistory, needed: float) -> Standing:
        statement = _STANDING.format(needed=_NEEDED[settings.measure])
        asked = (case.agent, case.task_type, case.seq, settings.episodes, needed, settings.key or "", LOOKED_AT)
        async with db.tenant(namespace) as connection:
            row = await connection.fetchrow(statement, namespace, *asked)
        return Standing(row["episodes"], row["more"], row["equal"])

    return standing
