"""Gives every stored trajectory of a registered agent its reward, exactly once."""

from dataclasses import astuple
from typing import Any

import orjson

from learnloop_memory.metrics import Metrics
from learnloop_memory.rewards.components import Episode, evaluate, needs_log
from learnloop_memory.rewards.normalise import Running, confidence, settle
from learnloop_memory.rewards.steps import division
from learnloop_memory.rewards.store import Policy, find_policy, statistics
from learnloop_memory.store.database import Database

BATCH = 200
# Steps are most of what a trajectory weighs: they are read only for policies that look at them.
LOG = """(SELECT s.steps FROM training_transitions s
    WHERE s.namespace = t.namespace AND s.trajectory_id = t.trajectory_id)"""
NO_LOG = "NULL"

# Only agents with a published policy; the partial index of unrewarded rows makes each probe one look-up.
_AGENTS = """
SELECT a.name FROM agents a
WHERE a.namespace = $1 AND a.registered_at IS NOT NULL
    AND EXISTS (SELECT 1 FROM reward_policy_revisions p WHERE p.namespace = a.namespace AND p.name = a.reward_policy
                AND p.revision = a.reward_policy_revision)
    AND EXISTS (SELECT 1 FROM trajectories t WHERE t.namespace = a.namespace AND t.agent_id = a.name
                AND t.reward IS NULL AND t.received_at >= a.since)
ORDER BY a.name
"""
_OPEN_STATISTICS = """
INSERT INTO reward_statistics (namespace, agent_id, reward_policy, reward_policy_revision) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
"""
_PENDING = """
SELECT t.trajectory_id, t.episode_return, t.success, t.steps, t.outcome_values, t.task, t.episode_id, t.policy_revision,
    {log} AS log
FROM trajectories t JOIN agents a ON a.namespace = t.namespace AND a.name = t.agent_id
WHERE t.namespace = $1 AND t.agent_id = $2 AND t.reward IS NULL AND t.received_at >= a.since
ORDER BY t.seq LIMIT $3 FOR UPDATE OF t
"""
_HISTORY = """
INSERT INTO reward_history (namespace, agent_id, reward_policy, reward_policy_revision, trajectory_id, components,
    raw_reward, reward, confidence, violated, created_at, published_at, task_id, credit_assigned, metadata)
SELECT $1, $2, $3, $4, t.trajectory_id, t.components, t.raw, t.reward, t.confidence, t.violated, clock_timestamp(),
    CASE WHEN $5::bool THEN NULL ELSE now() END, t.task, t.reward, t.metadata
FROM unnest($6::text[], $7::jsonb[], $8::float8[], $9::float8[], $10::float8[], $11::jsonb[], $12::text[], $13::jsonb[])
    AS t(trajectory_id, components, raw, reward, confidence, violated, task, metadata)
"""
_MARK = """
UPDATE trajectories SET reward = t.reward, reward_policy_revision = $2, warehoused = false
FROM unnest($3::text[], $4::float8[]) AS t(trajectory_id, reward)
WHERE trajectories.namespace = $1 AND trajectories.trajectory_id = t.trajectory_id
"""
_SAVE_STATISTICS = """
UPDATE reward_statistics SET count = $5, mean = $6, m2 = $7, low = $8, high = $9, recent = $10
WHERE namespace = $1 AND agent_id = $2 AND reward_policy = $3 AND reward_policy_revision = $4
"""
_COUNT = "UPDATE agents SET rewarded = rewarded + $3 WHERE namespace = $1 AND name = $2"
_RECENT = """
SELECT avg(reward)::float8 AS reward, avg((status = 'error')::int)::float8 AS errors
FROM (SELECT reward, status FROM trajectories WHERE namespace = $1 AND agent_id = $2 ORDER BY seq DESC LIMIT 100) t
"""


class RewardWorker:
    """Computes what is pending.

    Args:
        announce: leave an entry in the outbox for each reward (there is a NATS to publish it on).
        batch: how many at most in a transaction.
    """

    def __init__(self, db: Database, metrics: Metrics, *, announce: bool, batch: int = BATCH) -> None:
        self._db = db
        self._metrics = metrics
        self._announce = announce
        self._size = batch

    async def run(self, namespace: str) -> int:
        """Rewards everything pending in one namespace and returns how many that were.

        Raises:
            Unavailable: the rest stays pending.
        """
        async with self._db.tenant(namespace) as connection:
            agents = [row["name"] for row in await connection.fetch(_AGENTS, namespace)]
        done = 0
        for agent in agents:
            while count := await self._batch(namespace, agent):
                done += count
                if count < self._size:
                    break
        return done

    async def _batch(self, namespace: str, agent: str) -> int:
        async with self._db.tenant(namespace) as connection:
            policy = await find_policy(connection, namespace, agent)
            if policy is None:
                return 0
            key = (namespace, agent, policy.name, policy.revision)
            await connection.execute(_OPEN_STATISTICS, *key)
            # The lock lets one replica at a time reward this agent: the order of the scores is the order of arrival.
            running = await statistics(connection, namespace, agent, policy, lock=True)
            by_steps = needs_log(policy.spec) or policy.spec.credit.method == "environment"
            pending = _PENDING.format(log=LOG if by_steps else NO_LOG)
            rows = await connection.fetch(pending, namespace, agent, self._size)
            if not rows:
                return 0
            columns, running = compute(policy, running, rows)
            ids, rewards = columns[0], columns[3]
            await connection.execute(_HISTORY, *key, self._announce, *columns)
            await connection.execute(_MARK, namespace, policy.revision, ids, rewards)
            await connection.execute(_SAVE_STATISTICS, *key, *astuple(running))
            await connection.execute(_COUNT, namespace, agent, len(ids))
            recent = await connection.fetchrow(_RECENT, namespace, agent)
        for reward in rewards:
            self._metrics.reward(namespace, agent, reward)
        self._metrics.recent(namespace, agent, recent["reward"] or 0.0, recent["errors"] or 0.0)
        return len(rows)


Columns = tuple[list[str], list[str], list[float], list[float], list[float], list[str], list[str], list[str]]


def compute(policy: Policy, running: Running, rows: list[Any]) -> tuple[Columns, Running]:
    """Rewards of consecutive episodes, and the statistics after them.

    Returns:
        Columns (ids, components as JSON, raw, reward, confidence, broken constraints as JSON, tasks, metadata as JSON),
        each as long as `rows`.
    """
    columns: Columns = ([], [], [], [], [], [], [], [])
    for row in rows:
        episode = read_episode(row)
        worth = evaluate(policy.spec, episode)
        reward, running = settle(policy.spec, worth, running)
        columns[0].append(row["trajectory_id"])
        columns[1].append(orjson.dumps(worth.components).decode())
        columns[2].append(worth.raw)
        columns[3].append(reward)
        columns[4].append(confidence(policy.spec, worth, running))
        columns[5].append(orjson.dumps(worth.broken).decode())
        columns[6].append(row["task"])
        columns[7].append(metadata(policy, reward, episode, row))
    return columns, running


def metadata(policy: Policy, reward: float, episode: Episode, row: Any) -> str:
    """What a reward says of its episode when that is forgotten, as JSON: which one it was, and how the reward was
    divided among its steps."""
    told = {"episode_id": row["episode_id"], "policy_revision": row["policy_revision"]}
    told["credit"] = division(policy.spec.credit, reward, episode.steps, episode.log)
    return orjson.dumps(told).decode()


def read_episode(row: Any) -> Episode:
    """The episode in a row of `trajectories` that was selected together with its `log`."""
    values, log = orjson.loads(row["outcome_values"]), orjson.loads(row["log"]) if row["log"] else ()
    return Episode(row["episode_return"], row["success"], row["steps"], values, log)
