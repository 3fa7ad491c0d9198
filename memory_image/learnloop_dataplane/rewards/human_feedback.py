"""Opinions of people about episodes: one per person and episode, and part of the episode's reward.

The mean of all opinions about an episode becomes its outcome value `feedback`, which the reward component of that name
reads. Opinions come late: an episode that has its reward already is weighed again under the revision that weighed it,
against the statistics of now, which it does not enter a second time; the corrected reward is announced as well.
"""

from collections.abc import Callable
from typing import Any

import orjson

from learnloop_api import names
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import Reward
from learnloop_common.reward_rules.components import evaluate
from learnloop_dataplane import errors, privacy
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.nats.event_outbox import EventOutbox
from learnloop_dataplane.postgres.database import Database, uuid7
from learnloop_dataplane.rewards import reward_tables, reward_worker
from learnloop_dataplane.telemetry.agent_metrics import AgentMetrics

MAX_PEOPLE = 1000
BATCH = 100
_COUNT = "SELECT count(*) FROM user_feedback WHERE namespace = $1 AND trajectory_id = $2 AND user_hash <> $3"
_PUT = """
INSERT INTO user_feedback AS f (namespace, trajectory_id, user_hash, value) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, trajectory_id, user_hash) DO UPDATE SET value = excluded.value, given_at = now(), joined = false
WHERE f.value <> excluded.value RETURNING 1
"""
_PENDING = """
SELECT DISTINCT f.trajectory_id FROM user_feedback f JOIN trajectories t USING (namespace, trajectory_id)
WHERE f.namespace = $1 AND NOT f.joined ORDER BY f.trajectory_id LIMIT $2
"""
_LOCK = "SELECT agent_id FROM trajectories WHERE namespace = $1 AND trajectory_id = $2 FOR UPDATE"
_JOIN = """
WITH mean AS (SELECT avg(value)::float8 AS value FROM user_feedback WHERE namespace = $1 AND trajectory_id = $2)
UPDATE trajectories t SET warehoused = false,
    outcome_values = CASE WHEN mean.value IS NULL THEN t.outcome_values - 'feedback'
    ELSE t.outcome_values || jsonb_build_object('feedback', mean.value) END
FROM mean WHERE t.namespace = $1 AND t.trajectory_id = $2
"""
_JOINED = """
UPDATE user_feedback SET joined = true WHERE namespace = $1 AND trajectory_id = $2 AND NOT joined RETURNING value
"""
_REWARDED = f"""
SELECT t.trajectory_id, t.agent_id, t.episode_return, t.success, t.steps, t.outcome_values, {reward_tables.LOG} AS log,
    {reward_tables.SCORES.format(policy="h.reward_policy", revision="h.reward_policy_revision")} AS scores,
    t.episode_id, t.policy_revision, h.reward_policy, h.reward_policy_revision, p.spec
FROM trajectories t JOIN reward_history h USING (namespace, trajectory_id)
JOIN reward_policy_revisions p ON p.namespace = $1 AND p.name = h.reward_policy
    AND p.revision = h.reward_policy_revision
WHERE t.namespace = $1 AND t.trajectory_id = $2 AND t.reward IS NOT NULL
    AND h.reward_policy_revision = t.reward_policy_revision
"""
_CORRECT = """
UPDATE reward_history SET components = $5, raw_reward = $6, reward = $7, confidence = $8, violated = $9,
    credit_assigned = $7, metadata = $10
WHERE namespace = $1 AND trajectory_id = $2 AND reward_policy = $3 AND reward_policy_revision = $4
RETURNING clock_timestamp() AS now
"""
# A corrected reward is divided among its agents again.
_DIVIDE_AGAIN = "UPDATE task_results SET credited = false WHERE namespace = $1 AND trajectory_id = $2"
_MARK = "UPDATE trajectories SET reward = $3, warehoused = false WHERE namespace = $1 AND trajectory_id = $2"


class UserFeedback:
    """Opinions, and their way into the rewards.

    Args:
        arrived: called with a namespace in which an opinion waits to be joined to its episode.
    """

    def __init__(
        self,
        db: Database,
        users: privacy.Users,
        outbox: EventOutbox,
        arrived: Callable[[str], None],
        metrics: AgentMetrics,
    ) -> None:
        self._arrived, self._metrics = arrived, metrics
        self._db = db
        self._users = users
        self._outbox = outbox

    async def give(self, namespace: str, trajectory_id: str, user_id: str, value: float) -> bool:
        """Keeps one person's opinion; a later one replaces it. False: the person opted out, or the episode was
        erased; nothing was kept.

        Args:
            trajectory_id: may name an episode that is still on its way here.
            value: -1 to 1.

        Raises:
            ApiError: 409, a thousand others said something about this episode already.
        """
        async with self._db.tenant(namespace) as connection:
            user = (await self._users.hashes(connection, namespace, [user_id]))[user_id]
            if await self._users.opted_out(connection, namespace, [user]):
                return False
            if await privacy.is_erased(connection, namespace, trajectory_id):
                return False
            if await connection.fetchval(_COUNT, namespace, trajectory_id, user) >= MAX_PEOPLE:
                raise errors.ApiError(
                    409,
                    f"{MAX_PEOPLE} people gave feedback on this episode already; more would not change its mean",
                    field="trajectory_id",
                    value=trajectory_id,
                )
            if await connection.fetchval(_PUT, namespace, trajectory_id, user, value):
                detail = {"user": user, "value": f"{value:g}"}
                await note(connection, namespace, "feedback.given", f"trajectory/{trajectory_id}", detail)
        self._arrived(namespace)
        return True

    async def run(self, namespace: str) -> int:
        """Joins what is new to its episodes and returns how many episodes that were."""
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_PENDING, namespace, BATCH)
        for row in rows:
            async with self._db.tenant(namespace) as connection:
                await self.join(connection, namespace, row["trajectory_id"])
        return len(rows)

    async def join(self, connection: Any, namespace: str, trajectory_id: str) -> None:
        """Makes the mean of what people say now part of one episode, and weighs it again if it was weighed before."""
        agent = await connection.fetchval(_LOCK, namespace, trajectory_id)
        if agent is None:
            return
        for opinion in await connection.fetch(_JOINED, namespace, trajectory_id):
            self._metrics.opinion(namespace, agent, opinion["value"])
        await connection.execute(_JOIN, namespace, trajectory_id)
        row = await connection.fetchrow(_REWARDED, namespace, trajectory_id)
        if row is None:
            return
        spec = RewardPolicySpec.model_validate_json(row["spec"])
        policy = reward_tables.Policy(row["reward_policy"], row["reward_policy_revision"], spec)
        episode = reward_tables.read_episode(row)
        worth = evaluate(policy.spec, episode)
        running = await reward_tables.statistics(connection, namespace, row["agent_id"], policy)
        reward, _ = reward_tables.settle(policy.spec, worth, running)
        sure = reward_tables.confidence(policy.spec, worth, running)
        components, violated = orjson.dumps(worth.components).decode(), orjson.dumps(worth.broken).decode()
        key = (namespace, trajectory_id, policy.name, policy.revision)
        details = reward_worker.metadata(policy, reward, episode, row)
        now = await connection.fetchval(_CORRECT, *key, components, worth.raw, reward, sure, violated, details)
        await connection.execute(_MARK, namespace, trajectory_id, reward)
        await connection.execute(_DIVIDE_AGAIN, namespace, trajectory_id)
        event = Reward(
            trajectory_id=trajectory_id,
            agent=row["agent_id"],
            reward_policy=policy.name,
            reward_policy_revision=policy.revision,
            components=worth.components,
            raw_reward=worth.raw,
            reward=reward,
            confidence=sure,
            violated=list(worth.broken),
            computed_at=now,
            credit_assigned=reward,
            **reward_tables.policy_terms(policy.spec),
        )
        subject = f"{names.SUBJECT_REWARD}.{namespace}.{event.agent}"
        await self._outbox.put(
            connection, namespace, subject, f"{namespace}/feedback/{uuid7()}", event.model_dump_json().encode()
        )
