"""Agents: registration, the figures the operator reads, and what they observed."""

from collections.abc import Callable
from typing import Any

import orjson

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import AgentStats
from learnloop_dataplane.audit.journal import note
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.lifecycle import budgets
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.step_terms import credits

_REGISTER = """
INSERT INTO agents (namespace, name, registered_at, reward_policy, reward_policy_revision, memory_group)
VALUES ($1, $2, now(), $3, $4, $5)
ON CONFLICT (namespace, name) DO UPDATE SET registered_at = coalesce(agents.registered_at, now()),
    reward_policy = excluded.reward_policy, reward_policy_revision = excluded.reward_policy_revision,
    memory_group = excluded.memory_group
WHERE agents.registered_at IS NULL
    OR (agents.reward_policy, agents.reward_policy_revision, agents.memory_group) IS DISTINCT FROM
        (excluded.reward_policy, excluded.reward_policy_revision, excluded.memory_group)
"""
_FORGET = "DELETE FROM agents WHERE namespace = $1 AND name = $2"
_TOTALS = """
SELECT since, trajectories, rewarded, last_trajectory_at, first_episodes, first_return_sum, training_request
FROM agents WHERE namespace = $1 AND name = $2 AND registered_at IS NOT NULL
"""
# The newest hundred by index; averages of nothing are NULL.
RECENT = """
SELECT count(*) AS episodes, avg(episode_return)::float8 AS episode_return, avg(reward)::float8 AS reward,
    avg(success::int)::float8 AS success
FROM (SELECT episode_return, reward, success FROM trajectories
      WHERE namespace = $1 AND agent_id = $2 AND received_at >= $3 ORDER BY seq DESC LIMIT 100) recent
"""
_STEPS = """
SELECT s.steps FROM trajectories t JOIN training_transitions s USING (namespace, trajectory_id)
WHERE t.namespace = $1 AND t.agent_id = $2 ORDER BY t.seq DESC LIMIT $4 OFFSET $3
"""
# With the newest reward of each, and the revision that gave it; those not rewarded yet are left out.
_CREDITED = """
SELECT s.steps, h.reward, p.spec FROM trajectories t JOIN training_transitions s USING (namespace, trajectory_id)
JOIN LATERAL (
    SELECT reward, reward_policy, reward_policy_revision FROM reward_history r
    WHERE r.namespace = t.namespace AND r.trajectory_id = t.trajectory_id ORDER BY r.created_at DESC LIMIT 1) h ON true
JOIN reward_policy_revisions p
    ON p.namespace = t.namespace AND p.name = h.reward_policy AND p.revision = h.reward_policy_revision
WHERE t.namespace = $1 AND t.agent_id = $2 ORDER BY t.seq DESC LIMIT $4 OFFSET $3
"""
MAX_TRAJECTORIES_READ = 2000


class AgentRegistry:
    """The agents of all namespaces.

    Args:
        arrived: is told a namespace in which episodes may wait for rewards.
    """

    def __init__(self, db: Database, arrived: Callable[[str], None]) -> None:
        self._db = db
        self._arrived = arrived

    async def register(
        self, namespace: str, agent: str, policy: str | None, revision: str | None, group: str | None = None
    ) -> None:
        """Registers an agent or moves it to another policy revision or group: new episodes are rewarded by that one,
        and the agents of a group recall together.

        What arrived before the first registration counts as well; it is rewarded now.
        """
        async with self._db.tenant(namespace) as connection:
            changed = await connection.execute(_REGISTER, namespace, agent, policy, revision, group)
            if changed != "INSERT 0 0":
                told = {"reward_policy": policy, "reward_policy_revision": revision}
                told |= {"memory_group": group} if group is not None else {}
                await note(connection, namespace, "agent.registered", f"agent/{agent}", told)
        self._arrived(namespace)

    async def forget(self, namespace: str, agent: str) -> None:
        """Removes the registration, its totals and its memory budget. Trajectories, rewards and memories stay until
        their time is over; an agent registered later under the same name starts counting from zero."""
        async with self._db.tenant(namespace) as connection:
            if await connection.execute(_FORGET, namespace, agent) != "DELETE 0":
                await note(connection, namespace, "agent.deregistered", f"agent/{agent}")
            await budgets.drop(connection, namespace, agent)

    async def stats(self, namespace: str, agent: str) -> AgentStats:
        """The running totals and the averages of the newest hundred episodes.

        Raises:
            ApiError: 404, the agent is not registered.
        """
        async with self._db.tenant(namespace) as connection:
            row = await connection.fetchrow(_TOTALS, namespace, agent)
            if row is None:
                raise ApiError(
                    404,
                    "this agent is not registered; register it with PUT /api/v1/agents/{agent}",
                    field="agent",
                    value=agent,
                )
            recent = await connection.fetchrow(RECENT, namespace, agent, row["since"])
        return AgentStats(
            agent=agent,
            trajectories=row["trajectories"],
            rewarded=row["rewarded"],
            last_trajectory_at=row["last_trajectory_at"],
            recent_episodes=recent["episodes"],
            recent_return_mean=recent["episode_return"],
            recent_reward_mean=recent["reward"],
            recent_success_rate=recent["success"],
            first_return_mean=row["first_return_sum"] / row["first_episodes"] if row["first_episodes"] else None,
            training_request=row["training_request"],
        )

    async def observations(self, namespace: str, agent: str, limit: int) -> list[list[float]]:
        """The newest numeric observations of an agent, newest first; others (text, objects) are passed over."""
        found: list[list[float]] = []
        async with self._db.tenant(namespace) as connection:
            for offset in range(0, MAX_TRAJECTORIES_READ, 20):
                rows = await connection.fetch(_STEPS, namespace, agent, offset, 20)
                for row in rows:
                    found += _numeric(orjson.loads(row["steps"]))
                    if len(found) >= limit:
                        return found[:limit]
                if len(rows) < 20:
                    break
        return found

    async def trajectories(self, namespace: str, agent: str, limit: int, offset: int) -> bytes:
        """JSON {"trajectories": [[step, …], …]} of the newest trajectories, newest first; steps as they are stored."""
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_STEPS, namespace, agent, offset, limit)
        return b'{"trajectories":[%b]}' % b",".join(row["steps"].encode() for row in rows)

    async def credited(self, namespace: str, agent: str, limit: int, offset: int) -> list[list[dict[str, Any]]]:
        """The steps of the newest rewarded trajectories, newest first; the reward of each step is its part in the
        trajectory's reward, as the policy that gave it divides it."""
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_CREDITED, namespace, agent, offset, limit)
        specs = {text: RewardPolicySpec.model_validate_json(text) for text in {row["spec"] for row in rows}}
        found = []
        for row in rows:
            steps = orjson.loads(row["steps"])
            parts = credits(specs[row["spec"]].credit, row["reward"], steps)
            found.append([{**step, "reward": part} for step, part in zip(steps, parts, strict=True)])
        return found


def _numeric(steps: list[dict[str, Any]]) -> list[list[float]]:
    seen = [step["observation"] for step in reversed(steps)]
    return [item for item in seen if isinstance(item, list) and all(isinstance(x, int | float) for x in item)]
