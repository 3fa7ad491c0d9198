"""Publishes rewards that are committed but not yet announced: a crash in between cannot lose one.

From reading them to their acknowledgement no erasure begins: one that comes later finds the events in the stream.
"""

from typing import TYPE_CHECKING, Any

from learnloop_api import names
from learnloop_dataplane.nats.event_outbox import Event, publish_pending
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.reward_tables import as_reward

if TYPE_CHECKING:  # a process without NATS does not load its client
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
