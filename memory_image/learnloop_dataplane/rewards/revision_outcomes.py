"""What the revisions of a ModelDeployment earn: the evidence of the metric types `reward` and `feedback`."""

from collections.abc import Sequence

from learnloop_api.wire.deployment import DeploymentOutcomes, RevisionOutcomes
from learnloop_dataplane.postgres.database import Database

# Normalisation would hide what both arms share, so raw rewards count; what a constraint took away stays taken away. The
# opinions are read from where each person's is: an episode's outcome value `feedback` may be its agent's own invention.
_COUNT = """
SELECT w.revision, count(t.trajectory_id) AS episodes, count(r.value) AS rewarded,
    coalesce(sum(r.value), 0)::float8 AS reward_sum, count(f.value) AS rated,
    coalesce(sum(f.value), 0)::float8 AS feedback_sum
FROM unnest($3::text[]) AS w(revision)
LEFT JOIN trajectories t ON t.namespace = $1 AND t.model_deployment = $2 AND t.policy_revision = w.revision
    AND t.received_at >= now() - make_interval(secs => $4) AND t.status <> 'withdrawn'
LEFT JOIN LATERAL (
    SELECT CASE WHEN h.violated = '[]'::jsonb THEN h.raw_reward ELSE least(h.raw_reward, h.reward) END AS value
    FROM reward_history h WHERE h.namespace = $1 AND h.trajectory_id = t.trajectory_id AND t.reward IS NOT NULL
        AND h.reward_policy_revision = t.reward_policy_revision
    ORDER BY h.created_at DESC LIMIT 1) r ON true
LEFT JOIN LATERAL (
    SELECT avg(u.value) AS value FROM user_feedback u
    WHERE u.namespace = $1 AND u.trajectory_id = t.trajectory_id) f ON true
GROUP BY w.revision ORDER BY w.revision
"""


async def revision_outcomes(
    db: Database, namespace: str, deployment: str, revisions: Sequence[str], seconds: int
) -> DeploymentOutcomes:
    """Counts of each revision, also of those without an episode, over episodes that arrived in the last `seconds`.

    Raises:
        Unavailable: PostgreSQL does not answer.
    """
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(_COUNT, namespace, deployment, sorted(set(revisions)), float(seconds))
    return DeploymentOutcomes(seconds=seconds, revisions=[RevisionOutcomes.model_validate(dict(row)) for row in rows])
