"""How far each evaluator of a policy's revision agrees with the people who rated the same episodes."""

from collections import defaultdict
from dataclasses import asdict
from statistics import fmean
from typing import Any

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_dataplane.evaluators.agreement import agreement
from learnloop_dataplane.postgres.database import Database

NEWEST = 5000
"""Scores of a revision that are looked at: of all its components together."""
_SCORES = """
SELECT c.component, c.value, (SELECT avg(u.value) FROM user_feedback u
    WHERE u.namespace = $1 AND u.trajectory_id = c.trajectory_id) AS opinion
FROM (SELECT component, value, trajectory_id FROM task_scores
    WHERE namespace = $1 AND reward_policy = $2 AND reward_policy_revision = $3
    ORDER BY scored_at DESC LIMIT $4) c
"""


async def evaluations(
    db: Database, namespace: str, name: str, revision: str, spec: RewardPolicySpec
) -> list[dict[str, Any]]:
    """For each component with an evaluator: how many outputs it was asked about and could score, their mean, and its
    agreement with people; over the revision's newest scores."""
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(_SCORES, namespace, name, revision, NEWEST)
    by_component: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_component[row["component"]].append(row)
    found = []
    for component in spec.components:
        if component.evaluator is None:
            continue
        asked = by_component[component.name]
        values = [row["value"] for row in asked if row["value"] is not None]
        rated = [(row["value"], row["opinion"]) for row in asked if None not in (row["value"], row["opinion"])]
        found.append(
            {
                "component": component.name,
                "evaluator": component.evaluator.type,
                "asked": len(asked),
                "scored": len(values),
                "mean": fmean(values) if values else None,
                "agreement_with_people": asdict(agreement(rated)),
            }
        )
    return found
