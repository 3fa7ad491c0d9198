"""How far each evaluator of a policy's revision agrees with the people who rated the same episodes."""

from collections import defaultdict
from dataclasses import asdict
from typing import Any

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_dataplane.evaluators.agreement import agreement
from learnloop_dataplane.postgres.database import Database

NEWEST = 5000
_RATED = """
SELECT component, value, opinion FROM (
    SELECT c.component, c.value, f.opinion, c.scored_at FROM task_scores c
    JOIN LATERAL (SELECT avg(u.value) AS opinion FROM user_feedback u
        WHERE u.namespace = c.namespace AND u.trajectory_id = c.trajectory_id) f ON f.opinion IS NOT NULL
    WHERE c.namespace = $1 AND c.reward_policy = $2 AND c.reward_policy_revision = $3 AND c.value IS NOT NULL
    ORDER BY c.scored_at DESC LIMIT $4) rated
"""
_COUNTS = """
SELECT component, count(*) AS asked, count(value) AS scored, avg(value)::float8 AS mean FROM task_scores
WHERE namespace = $1 AND reward_policy = $2 AND reward_policy_revision = $3 GROUP BY component
"""


async def evaluations(
    db: Database, namespace: str, name: str, revision: str, spec: RewardPolicySpec
) -> list[dict[str, Any]]:
    """For each component with an evaluator: how many outputs it was asked about and could score, their mean, and its
    agreement with people over the newest rated episodes."""
    async with db.tenant(namespace) as connection:
        counts = {row["component"]: row for row in await connection.fetch(_COUNTS, namespace, name, revision)}
        rated = await connection.fetch(_RATED, namespace, name, revision, NEWEST)
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rated:
        pairs[row["component"]].append((row["value"], row["opinion"]))
    found = []
    for component in spec.components:
        if component.evaluator is None:
            continue
        seen = counts.get(component.name)
        told = {"asked": seen["asked"], "scored": seen["scored"], "mean": seen["mean"]} if seen else {}
        found.append(
            {"component": component.name, "evaluator": component.evaluator.type}
            | {"asked": 0, "scored": 0, "mean": None}
            | told
            | {"agreement_with_people": asdict(agreement(pairs[component.name]))}
        )
    return found
