"""Fills a database with the history of one busy agent, and of a quiet one in the same namespace."""

import json
from typing import Any

NAMESPACE, BUSY, QUIET = "team-a", "busy", "quiet"
DEPLOYMENT, REVISION, POLICY, POLICY_REVISION = "serving", "r1", "good", "p1"
USER = "user:" + "0" * 32
SPREAD_DAYS = 20
STEP = {"observation": [0.1, 0.2, 0.3, 0.4], "action": 1, "reward": 1.0, "exploration": True}
# $1: how many; $2: the steps of each. The newest five episodes are the quiet agent's. None has work left to do.
_EPISODES = f"""
WITH made AS (INSERT INTO trajectories (namespace, trajectory_id, agent_id, task, episode_id, model_deployment,
    policy_revision, started_at, ended_at, received_at, steps, status, episode_return, success, outcome_values,
    retrieval_ids, labels, reward, reward_policy_revision, remembered, credited, warehoused)
    SELECT '{NAMESPACE}', 'h' || n, CASE WHEN n > $1 - 5 THEN '{QUIET}' ELSE '{BUSY}' END, 'cartpole', 'h' || n,
        '{DEPLOYMENT}', '{REVISION}', at, at, at, 1, 'completed', 20, true, '{{}}', '[]',
        jsonb_build_object('joint_task', CASE WHEN n % 5 = 0 THEN 'joint' || n ELSE 'everything' END)
            || jsonb_build_object('user_id', 'user:' || lpad((n % 5000)::text, 32, '0')),
        0.5, '{POLICY_REVISION}', true, true, true
    FROM (SELECT n, now() - ($1 - n)::float8 / $1 * interval '{SPREAD_DAYS} days' AS at
        FROM generate_series(1, $1::bigint) n) t
    RETURNING namespace, trajectory_id)
INSERT INTO training_transitions (namespace, trajectory_id, steps)
SELECT namespace, trajectory_id, $2::jsonb FROM made
"""
_OF_EPISODES = (
    f"""INSERT INTO reward_history (namespace, trajectory_id, reward_policy, reward_policy_revision, agent_id,
        components, raw_reward, reward, violated, created_at, published_at, task_id)
    SELECT namespace, trajectory_id, '{POLICY}', '{POLICY_REVISION}', agent_id, '{{"won": 1}}', 1, 0.5, '[]',
        received_at, received_at, task FROM trajectories""",
    """INSERT INTO task_results (namespace, trajectory_id, task_type, result, credited)
    SELECT namespace, trajectory_id, 'sum', '{"task_type": "sum", "output": "4"}', true FROM trajectories""",
    f"""INSERT INTO task_scores (namespace, trajectory_id, reward_policy, reward_policy_revision, component, value,
        note, scored_at)
    SELECT namespace, trajectory_id, '{POLICY}', '{POLICY_REVISION}', 'won', 1, '', received_at FROM trajectories""",
    """INSERT INTO task_credits (namespace, trajectory_id, agent_id, raw_reward, shaped_reward, credit_assigned, method,
        task_type, created_at)
    SELECT namespace, trajectory_id, agent_id, 1, 1, 1, 'equal', 'sum', received_at FROM trajectories""",
    """INSERT INTO user_feedback (namespace, trajectory_id, user_hash, value, given_at, joined)
    SELECT namespace, trajectory_id, labels ->> 'user_id', 1, received_at, true FROM trajectories""",
    f"""INSERT INTO event_outbox (namespace, message_id, subject, payload, created_at, published_at)
    SELECT namespace, namespace || '/e/' || trajectory_id, 'agent.rl.reward.v1.{NAMESPACE}.' || agent_id, '{{}}',
        received_at, received_at FROM trajectories""",
    """INSERT INTO audit_log (namespace, seq, at, actor, action, subject, outcome, detail, previous, hash)
    SELECT namespace, 1000 + seq, received_at, 'system', 'feedback.given', 'trajectory/' || trajectory_id, 'done', '{}',
        '', '' FROM trajectories""",
    f"""INSERT INTO preferences (namespace, preference_id, agent_id, user_hash, sessions, body, given_at)
    SELECT namespace, trajectory_id, '{BUSY}', labels ->> 'user_id', '{{}}', '{{}}', received_at
    FROM trajectories ORDER BY seq""",
    """INSERT INTO erased_trajectories (namespace, digest, subject)
    SELECT namespace, md5(trajectory_id), 'user/' || (labels ->> 'user_id') FROM trajectories""",
    f"""INSERT INTO recall_log (namespace, retrieval_id, agent_id, created_at, memory_ids, reward,
        settled_at)
    SELECT namespace, gen_random_uuid(), '{BUSY}', received_at, '{{}}', 0.5, received_at
    FROM trajectories""",
    f"""UPDATE agents SET trajectories = $1::bigint, rewarded = $1::bigint, since = now() - interval '1 year'
    WHERE namespace = '{NAMESPACE}'""",
)
# Of the busy agent, each a copy of its first one with words of its own.
_MEMORIES = (
    f"""INSERT INTO agent_memories (namespace, id, agent_id, memory_type, content, text, importance, source, origin,
        created_at)
    SELECT namespace, gen_random_uuid(), agent_id, memory_type, content, text || ' ' || n, importance, source,
        'web/' || n, now() - ($1 - n)::float8 / $1 * interval '{SPREAD_DAYS} days'
    FROM agent_memories, generate_series(1, $1::bigint) n WHERE agent_id = '{BUSY}'""",
    f"""INSERT INTO memory_index (namespace, agent_id, memory_id, memory_type, spoken_at, visible_from,
        terms, same, analyzer)
    SELECT m.namespace, m.agent_id, m.id, v.memory_type, m.created_at, m.created_at, v.terms, hashtext(m.text),
        v.analyzer
    FROM agent_memories m, memory_index v
    WHERE m.agent_id = '{BUSY}' AND v.agent_id = '{BUSY}' AND m.id <> v.memory_id""",
    """INSERT INTO memory_use (namespace, memory_id, access_count, last_accessed)
    SELECT namespace, id, 1, created_at FROM agent_memories ON CONFLICT DO NOTHING""",
)


async def fill_episodes(connection: Any, count: int, steps: int = 1) -> None:
    """Stores as many episodes, and a row of each table that keeps something of an episode.

    Both agents are registered already. `connection` is a superuser's: triggers and foreign keys are passed over.
    """
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(_EPISODES, count, json.dumps([STEP] * steps))
    for statement in _OF_EPISODES:
        await connection.execute(statement, *([count] if "$1" in statement else []))
    await connection.execute("SET session_replication_role = origin")


async def fill_memories(connection: Any, count: int) -> None:
    """Stores as many memories of the busy agent, which has exactly one, indexed."""
    await connection.execute("SET session_replication_role = replica")
    for statement in _MEMORIES:
        await connection.execute(statement, *([count] if "$1" in statement else []))
    await connection.execute("SET session_replication_role = origin")
