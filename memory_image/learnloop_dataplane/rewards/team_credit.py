"""Division of a task's reward among the agents that took part. The parts always add up to the reward."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from learnloop_api.kinds.reward_policy import RewardPolicySpec, TeamCredit
from learnloop_api.wire.trajectory import TaskResult
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards import reward_tables


@dataclass(frozen=True)
class Division:
    """Each agent's part, in the order of the agents, and the method that was used in the end."""

    method: str
    parts: Mapping[str, float]

    def described(self) -> list[dict[str, Any]]:
        return [{"agent": agent, "credit_assigned": part, "method": self.method} for agent, part in self.parts.items()]


def divide(rule: TeamCredit, reward: float, without: Mapping[str, float | None]) -> Division:
    """Divides `reward` among the agents of `without`: what the others would have got without each; None: unknown.

    `difference` gives an agent the reward minus that value (Wolpert & Tumer, 2002), and nothing where it is unknown.
    These do not add up to the reward, so the rest is shared equally, as non-separable costs are (Moulin, J. Economic
    Theory 36, 1985). Where all are unknown, the parts are equal.
    """
    count = len(without)
    if rule.method == "equal" or count == 1 or all(value is None for value in without.values()):
        return Division("equal", dict.fromkeys(without, reward / count))
    own = {agent: 0.0 if value is None else reward - value for agent, value in without.items()}
    rest = (reward - math.fsum(own.values())) / count
    return Division("difference", {agent: part + rest for agent, part in own.items()})


def stored_division(
    spec: RewardPolicySpec, running: reward_tables.Running, reward: float, result: TaskResult
) -> Division:
    """Divides a reward as it is stored. The result's values are raw: they are put on the same scale first."""
    without = {
        agent: None if value is None else reward_tables.scaled(spec, value, running)
        for agent, value in result.participants().items()
    }
    return divide(spec.team_credit, reward, without)


DIVIDED_AT_ONCE = 100
_UNDIVIDED = """
SELECT r.trajectory_id, r.task_type, r.result, t.agent_id, h.raw_reward, h.reward, p.spec, h.reward_policy,
    h.reward_policy_revision, coalesce((h.metadata ->> 'worth')::float8, h.raw_reward) AS worth
FROM task_results r
JOIN trajectories t ON t.namespace = r.namespace AND t.trajectory_id = r.trajectory_id AND t.reward IS NOT NULL
JOIN reward_history h ON h.namespace = r.namespace AND h.trajectory_id = r.trajectory_id
    AND h.reward_policy_revision = t.reward_policy_revision
JOIN reward_policy_revisions p ON p.namespace = r.namespace AND p.name = h.reward_policy
    AND p.revision = h.reward_policy_revision
WHERE r.namespace = $1 AND NOT r.credited ORDER BY r.trajectory_id LIMIT $2 FOR UPDATE OF r SKIP LOCKED
"""
_KEEP_CREDITS = """
INSERT INTO task_credits (namespace, trajectory_id, agent_id, raw_reward, shaped_reward, credit_assigned, method,
    task_type, learned_reward, learned_credit)
SELECT $1, $2, c.agent, $3, $4, c.credit, $5, $6, $7, c.learned
FROM unnest($8::text[], $9::float8[], $10::float8[]) AS c(agent, credit, learned)
ON CONFLICT (namespace, trajectory_id, agent_id) DO UPDATE SET raw_reward = excluded.raw_reward,
    shaped_reward = excluded.shaped_reward, credit_assigned = excluded.credit_assigned,
    method = excluded.method, learned_reward = excluded.learned_reward, learned_credit = excluded.learned_credit
"""
_OWN = """
UPDATE reward_history SET credit_assigned = $3, metadata = metadata || jsonb_build_object('agents', $4::jsonb)
WHERE namespace = $1 AND trajectory_id = $2
"""
_DONE = "UPDATE task_results SET credited = true WHERE namespace = $1 AND trajectory_id = $2"
_OF_TASK = """
SELECT agent_id AS agent, raw_reward, shaped_reward, credit_assigned, method, learned_credit FROM task_credits
WHERE namespace = $1 AND trajectory_id = $2 ORDER BY agent_id
"""
_OF_AGENT = """
SELECT trajectory_id, agent_id AS agent, task_type, raw_reward, shaped_reward, credit_assigned, method, learned_credit,
    created_at
FROM task_credits WHERE namespace = $1 AND agent_id = $2 AND (created_at, trajectory_id) < ($4, $5)
ORDER BY created_at DESC, trajectory_id DESC LIMIT $3
"""


class TeamCredits:
    """Parts of all namespaces' agents in the rewards of common tasks."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def run(self, namespace: str) -> int:
        """Divides every reward that waits for it, and returns how many that were."""
        done = 0
        while True:
            async with self._db.tenant(namespace) as connection:
                rows = await connection.fetch(_UNDIVIDED, namespace, DIVIDED_AT_ONCE)
                for row in rows:
                    await _divide(connection, namespace, row)
            done += len(rows)
            if len(rows) < DIVIDED_AT_ONCE:
                return done

    async def of_task(self, namespace: str, trajectory_id: str) -> list[dict[str, Any]]:
        """Every agent's part in one task's reward, by name; none where it was not divided."""
        async with self._db.tenant(namespace) as connection:
            return [dict(row) for row in await connection.fetch(_OF_TASK, namespace, trajectory_id)]

    async def of_agent(self, namespace: str, agent: str, limit: int, before: tuple[Any, ...]) -> list[dict[str, Any]]:
        """An agent's parts, newest first, those before a time and a trajectory."""
        async with self._db.tenant(namespace) as connection:
            return [dict(row) for row in await connection.fetch(_OF_AGENT, namespace, agent, limit, *before)]


async def _divide(connection: Any, namespace: str, row: Any) -> None:
    identity, result = row["trajectory_id"], TaskResult.model_validate_json(row["result"])
    if result.agents:
        spec = RewardPolicySpec.model_validate_json(row["spec"])
        policy = reward_tables.Policy(row["reward_policy"], row["reward_policy_revision"], spec)
        running = await reward_tables.statistics(connection, namespace, row["agent_id"], policy)
        stored = stored_division(spec, running, row["reward"], result)
        learned = divide(spec.team_credit, row["worth"], result.participants())
        values = (row["raw_reward"], row["reward"], stored.method, row["task_type"], row["worth"])
        columns = (list(stored.parts), list(stored.parts.values()), list(learned.parts.values()))
        await connection.execute(_KEEP_CREDITS, namespace, identity, *values, *columns)
        own = stored.parts.get(row["agent_id"], 0.0)
        await connection.execute(_OWN, namespace, identity, own, orjson.dumps(stored.described()).decode())
    await connection.execute(_DONE, namespace, identity)
