"""Agents: registration, the figures the operator reads, and what they observed."""

from collections.abc import Callable
from typing import Any

import orjson

from learnloop_api.wire.reward import AgentStats, ArmReturns
from learnloop_api.wire.training_request import TrainingOrder
from learnloop_dataplane.audit.chain import note, noted
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher, StepLog
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.lifecycle.forgetting import drop_budget
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.schema_facts import STEPS_OF_EACH

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
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"
_FORGET = "DELETE FROM agents WHERE namespace = $1 AND name = $2"
_TOTALS = """
SELECT since, trajectories, rewarded, last_trajectory_at, first_episodes, first_return_sum, training_request,
    training_wish
FROM agents WHERE namespace = $1 AND name = $2 AND registered_at IS NOT NULL
"""
# The newest hundred by index; averages of nothing are NULL. What is older than the registration is left out of them
# afterwards: asked for within the hundred, it would have a new agent of an old name read all of its history.
RECENT = """
SELECT count(*) AS episodes, avg(episode_return)::float8 AS episode_return, avg(reward)::float8 AS reward,
    avg(success::int)::float8 AS success
FROM (SELECT episode_return, reward, success, received_at FROM trajectories
      WHERE namespace = $1 AND agent_id = $2 ORDER BY seq DESC LIMIT 100) recent WHERE received_at >= $3
"""
# By who acted, the latest arms first; what was withdrawn tells nothing of its arm.
_ARMS = """
SELECT policy_revision, (array_agg(episode_return ORDER BY seq DESC))[1:200] AS returns
FROM (SELECT seq, policy_revision, episode_return, received_at, status FROM trajectories
      WHERE namespace = $1 AND agent_id = $2 ORDER BY seq DESC LIMIT 400) newest
WHERE received_at >= $3 AND status <> 'withdrawn' GROUP BY 1 ORDER BY max(seq) DESC LIMIT 8
"""
_STEPS = f"""
SELECT t.seq, t.trajectory_id, s.steps FROM (
    SELECT * FROM trajectories t WHERE t.namespace = $1 AND t.agent_id = $2 AND t.seq < $3
    ORDER BY t.seq DESC LIMIT $4) t {STEPS_OF_EACH} ORDER BY t.seq DESC
"""
MAX_TRAJECTORIES_READ, PAGE = 2000, 20
_NEWEST = 2**63 - 1


class AgentRegistry:
    """The agents of all namespaces.

    Args:
        arrived: called with a namespace in which episodes may wait for rewards.
    """

    def __init__(self, db: Database, arrived: Callable[[str], None], cipher: StepCipher = PLAIN) -> None:
        self._cipher = cipher
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
                detail = {"reward_policy": policy, "reward_policy_revision": revision}
                detail |= {"memory_group": group} if group is not None else {}
                await note(connection, namespace, "agent.registered", f"agent/{agent}", detail)
        self._arrived(namespace)

    async def ordered(self, namespace: str, identity: str, order: TrainingOrder) -> bool:
        """Puts a person's order to train into the audit chain; False when it is there, among the newest records of the
        namespace.
        """
        subject = f"agent/{order.agent}"
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_LOCK, f"{namespace}/training-order/{identity}")
            if await noted(connection, namespace, subject, identity):
                return False
            detail = order.model_dump(mode="json", exclude={"agent"}) | {"id": identity}
            await note(connection, namespace, "training.ordered", subject, detail)
        return True

    async def forget(self, namespace: str, agent: str) -> None:
        """Removes the registration, its totals and its memory budget. Trajectories, rewards and memories stay until
        their time is over; an agent registered later under the same name starts counting from zero."""
        async with self._db.tenant(namespace) as connection:
            if await connection.execute(_FORGET, namespace, agent) != "DELETE 0":
                await note(connection, namespace, "agent.deregistered", f"agent/{agent}")
            await drop_budget(connection, namespace, agent)

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
            arms = await connection.fetch(_ARMS, namespace, agent, row["since"])
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
            arms=[ArmReturns(revision=arm["policy_revision"], returns=arm["returns"][::-1]) for arm in arms],
            training_request=row["training_request"],
            training_wish=orjson.loads(row["training_wish"]) if row["training_wish"] else None,
        )

    async def observations(self, namespace: str, agent: str, limit: int) -> list[list[float]]:
        """The newest numeric observations of an agent, newest first; others (text, objects) are passed over."""
        observations: list[list[float]] = []
        async with self._db.tenant(namespace) as connection:
            before = _NEWEST
            for _ in range(0, MAX_TRAJECTORIES_READ, PAGE):
                rows = await connection.fetch(_STEPS, namespace, agent, before, PAGE)
                stored = [StepLog(row["trajectory_id"], row["steps"]) for row in rows]
                for row, log in zip(rows, await self._cipher.open(connection, namespace, stored), strict=True):
                    before = row["seq"]
                    observations += _numeric(orjson.loads(log.steps or "[]"))
                    if len(observations) >= limit:
                        return observations[:limit]
                if len(rows) < PAGE:
                    break
        return observations


def _numeric(steps: list[dict[str, Any]]) -> list[list[float]]:
    observations = [step["observation"] for step in reversed(steps)]
    return [item for item in observations if isinstance(item, list) and all(isinstance(x, int | float) for x in item)]
