"""Publishes rewards that are committed but not yet announced: a crash in between cannot lose one.

From reading them to their acknowledgement no erasure begins: one that comes later finds the events in the stream.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from learnloop_api import names
from learnloop_api.wire.deployment import DeploymentOutcomes, RevisionOutcomes
from learnloop_dataplane.nats.event_outbox import Event, publish_pending
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.reward_tables import as_reward

if TYPE_CHECKING:
    from learnloop_dataplane.nats.connection import Bus


# What a team earned is announced when it is divided.
_UNPUBLISHED = """
SELECT trajectory_id, agent_id AS agent, reward_policy, reward_policy_revision, components, raw_reward, reward,
    confidence, violated, h.created_at AS computed_at, task_id, credit_assigned, metadata, p.spec
FROM reward_history h LEFT JOIN reward_policy_revisions p
    ON p.namespace = h.namespace AND p.name = h.reward_policy AND p.revision = h.reward_policy_revision
WHERE h.namespace = $1 AND published_at IS NULL AND NOT EXISTS (
    SELECT 1 FROM task_results r
    WHERE r.namespace = h.namespace AND r.trajectory_id = h.trajectory_id AND NOT r.credited)
ORDER BY h.created_at LIMIT $2
"""
_PUBLISHED = """
UPDATE reward_history SET published_at = now() FROM unnest($2::text[], $3::text[], $4::text[])
    AS t(trajectory_id, policy, revision)
WHERE namespace = $1 AND reward_history.trajectory_id = t.trajectory_id AND reward_policy = t.policy
    AND reward_policy_revision = t.revision
"""


class RewardOutbox:
    """Relays `reward_history` to `agent.rl.reward.v1.<namespace>.<agent>`, at least once and deduplicated by id."""

    def __init__(self, db: Database, bus: "Bus") -> None:
        self._db = db
        self._bus = bus

    async def run(self, namespace: str) -> int:
        """Publishes what is pending in one namespace, as much as a turn has, and returns how many that were.

        Raises:
            Unavailable: what was not marked will be published again; the message id makes that harmless.
        """
        keys = ("trajectory_id", "reward_policy", "reward_policy_revision")
        return await publish_pending(self._db, self._bus, namespace, _UNPUBLISHED, _event, (_PUBLISHED, keys))


def _event(namespace: str, row: Any) -> Event:
    reward = as_reward(row)
    message_id = f"{namespace}/{reward.trajectory_id}:{reward.reward_policy}:{reward.reward_policy_revision}"
    return f"{names.SUBJECT_REWARD}.{namespace}.{reward.agent}", reward.model_dump_json().encode(), message_id


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
    """Counts of each revision, also of those without an episode, over episodes that arrived in the last `seconds`."""
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(_COUNT, namespace, deployment, sorted(set(revisions)), float(seconds))
    return DeploymentOutcomes(seconds=seconds, revisions=[RevisionOutcomes.model_validate(dict(row)) for row in rows])
