"""Agents: registration, the figures the operator reads, what they observed, and progress by week."""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date
from typing import Any

import orjson
from sqlmodel import func

from learnloop_api import names
from learnloop_api.wire import deployment, reward, training_request
from learnloop_dataplane import data_keys, errors
from learnloop_dataplane.audit.chain import note, note_once
from learnloop_dataplane.lifecycle.forgetting import drop_budget
from learnloop_dataplane.postgres import database, experience_tables

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
    ORDER BY t.seq DESC LIMIT $4) t {database.STEPS_OF_EACH} ORDER BY t.seq DESC
"""
MAX_TRAJECTORIES_READ, PAGE = 2000, 20
_NEWEST = 2**63 - 1


class AgentRegistry:
    """The agents of all namespaces.

    Args:
        arrived: called with a namespace in which episodes may wait for rewards.
    """

    def __init__(
        self, db: database.Database, arrived: Callable[[str], None], cipher: data_keys.StepCipher = data_keys.PLAIN
    ) -> None:
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
        detail = {"reward_policy": policy, "reward_policy_revision": revision}
        async with self._db.session(namespace) as session:
            row = await session.locked(experience_tables.Agent(namespace=namespace, name=agent))
            row.sqlmodel_update({**detail, "memory_group": group, "registered_at": row.registered_at or func.now()})
            if session.is_modified(row):
                detail |= {"memory_group": group} if group is not None else {}
                await note(session.raw, namespace, "agent.registered", f"agent/{agent}", detail)
        self._arrived(namespace)

    async def ordered(self, namespace: str, identity: str, order: training_request.TrainingOrder) -> bool:
        """Puts a person's order to train into the audit chain; False when it is there, among the newest records of the
        namespace.
        """
        subject, detail = f"agent/{order.agent}", order.model_dump(mode="json", exclude={"agent"})
        async with self._db.tenant(namespace) as connection:
            return await note_once(connection, namespace, "training.ordered", subject, detail, identity=identity)

    async def forget(self, namespace: str, agent: str) -> None:
        """Removes the registration, its totals and its memory budget. Trajectories, rewards and memories stay until
        their time is over; an agent registered later under the same name starts counting from zero."""
        async with self._db.session(namespace) as session:
            if row := await session.get(experience_tables.Agent, (namespace, agent), with_for_update=True):
                await session.delete(row)
                await note(session.raw, namespace, "agent.deregistered", f"agent/{agent}")
            await drop_budget(session, namespace, agent)

    async def stats(self, namespace: str, agent: str) -> reward.AgentStats:
        """The running totals and the averages of the newest hundred episodes.

        Raises:
            ApiError: 404, the agent is not registered.
        """
        async with self._db.session(namespace) as session:
            row = await session.get(experience_tables.Agent, (namespace, agent))
            if row is None or row.registered_at is None:
                raise errors.ApiError(
                    404,
                    "this agent is not registered; register it with PUT /api/v1/agents/{agent}",
                    field="agent",
                    value=agent,
                )
            recent = await session.raw.fetchrow(RECENT, namespace, agent, row.since)
            arms = await session.raw.fetch(_ARMS, namespace, agent, row.since)
        return reward.AgentStats(
            agent=agent,
            **row.model_dump(include={"trajectories", "rewarded", "last_trajectory_at", "training_request"}),
            recent_episodes=recent["episodes"],
            recent_return_mean=recent["episode_return"],
            recent_reward_mean=recent["reward"],
            recent_success_rate=recent["success"],
            first_return_mean=row.first_return_sum / row.first_episodes if row.first_episodes else None,
            arms=[reward.ArmReturns(revision=arm["policy_revision"], returns=arm["returns"][::-1]) for arm in arms],
            training_wish=orjson.loads(row.training_wish) if row.training_wish else None,
        )

    async def observations(self, namespace: str, agent: str, limit: int) -> list[list[float]]:
        """The newest numeric observations of an agent, newest first; others (text, objects) are passed over."""
        observations: list[list[float]] = []
        async with self._db.tenant(namespace) as connection:
            before = _NEWEST
            for _ in range(0, MAX_TRAJECTORIES_READ, PAGE):
                rows = await connection.fetch(_STEPS, namespace, agent, before, PAGE)
                stored = [data_keys.StepLog(row["trajectory_id"], row["steps"]) for row in rows]
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


SETTLED_HOURS = 24
"""A run without a heartbeat for this long has failed."""
# By the calendar of UTC, whatever time zone the database has: there, some weeks have an hour more.
_BEGINS = "SELECT (date_trunc('week', now() AT TIME ZONE 'UTC') - make_interval(weeks => $1 - 1)) AT TIME ZONE 'UTC'"
_EPISODES = """
SELECT date_trunc('week', t.received_at AT TIME ZONE 'UTC')::date AS week, count(*) AS episodes,
    avg(t.success::int)::float8 AS success_rate,
    (avg(extract(epoch FROM t.ended_at - t.started_at)) FILTER (WHERE t.success))::float8 AS completion_seconds,
    (avg(CASE jsonb_typeof(t.outcome_values -> 'turns') WHEN 'number' THEN (t.outcome_values ->> 'turns')::float8
        ELSE t.steps END) FILTER (WHERE t.success))::float8 AS turns,
    avg(f.value)::float8 AS satisfaction, count(f.value) AS rated, avg(r.value)::float8 AS raw_reward
FROM trajectories t
LEFT JOIN LATERAL (SELECT avg(u.value) AS value FROM user_feedback u
    WHERE u.namespace = $1 AND u.trajectory_id = t.trajectory_id) f ON true
LEFT JOIN LATERAL (SELECT h.raw_reward AS value FROM reward_history h
    WHERE h.namespace = $1 AND h.trajectory_id = t.trajectory_id AND t.reward IS NOT NULL
    ORDER BY h.created_at DESC LIMIT 1) r ON true
WHERE t.namespace = $1 AND t.agent_id = $2 AND t.status <> 'withdrawn' AND t.received_at >= $3
GROUP BY 1
"""
# The operator tells how each run ended. That outlives the run, which goes with its TrainingJob. A run without
# such an event names its agent in its proof; without one its checkpoints or its own name do.
_TRAININGS = """
WITH told AS (
    SELECT o.payload::jsonb AS run, o.created_at AS at FROM event_outbox o
    WHERE o.namespace = $1 AND starts_with(o.subject, $5) AND o.created_at >= $3
        AND o.payload::jsonb ->> 'status' IN ('completed', 'failed')
), ended AS (
    SELECT at, run ->> 'phase' = 'validated' AS proven, run FROM told WHERE run ->> 'agent' = $2
    UNION ALL
    SELECT coalesce(r.beat_at, r.created_at), r.proof IS NOT NULL, r.proof
    FROM training_runs r
    WHERE r.namespace = $1 AND (r.proof ->> 'agent' = $2 OR r.proof IS NULL AND (
            regexp_replace(r.job, '-[0-9]+$', '') = $2 AND r.job <> $2 OR EXISTS (SELECT 1 FROM model_checkpoints c
                WHERE c.namespace = $1 AND c.job = r.job AND c.agent_id = $2)))
        AND (r.proof IS NOT NULL OR r.heartbeat ->> 'phase' = 'failed'
            OR coalesce(r.beat_at, r.created_at) < now() - make_interval(hours => $4))
        AND coalesce(r.beat_at, r.created_at) >= $3
        AND NOT EXISTS (SELECT 1 FROM told WHERE told.run ->> 'job' = r.job AND told.at >= r.created_at)
), judged AS (
    SELECT at, proven, run -> 'cost' AS cost,
        CASE WHEN (run #>> '{evaluation,episodes}')::bigint IS DISTINCT FROM 0 THEN
        (run #>> '{evaluation,mean}')::float8 - (run #>> '{baseline,mean}')::float8 END AS gain
    FROM ended
)
SELECT date_trunc('week', at AT TIME ZONE 'UTC')::date AS week, count(*) AS trainings,
    avg(proven::int)::float8 AS training_success_rate, count(gain) AS gains, avg(gain)::float8 AS gain_per_training,
    sum((cost ->> 'cpu_hours')::float8) AS cpu_hours, sum((cost ->> 'gpu_hours')::float8) AS gpu_hours,
    CASE WHEN count(DISTINCT cost ->> 'currency') = 1 THEN sum((cost ->> 'money')::float8) END AS money,
    CASE WHEN count(DISTINCT cost ->> 'currency') = 1 THEN max(cost ->> 'currency') END AS currency,
    coalesce(sum(gain) FILTER (WHERE gpus > 0) / nullif(sum(gpus), 0),
        CASE WHEN coalesce(sum(gpus), 0) = 0
        THEN sum(gain) FILTER (WHERE cost IS NOT NULL) / nullif(sum((cost ->> 'cpu_hours')::float8), 0) END
    ) AS gain_per_hour
FROM (SELECT *, (cost ->> 'gpu_hours')::float8 AS gpus FROM judged) AS counted GROUP BY 1
"""
# The agent's own rollout has its name; its episodes name the others.
_MOVES = """
SELECT o.payload FROM event_outbox o
WHERE o.namespace = $1 AND o.subject IN (
    SELECT $3 || d.deployment FROM (
        SELECT $2 AS deployment UNION SELECT DISTINCT t.model_deployment FROM trajectories t
        WHERE t.namespace = $1 AND t.agent_id = $2 AND t.model_deployment IS NOT NULL
    ) d
)
"""
# The revision, and all others while it was played.
_COMPARED = """
WITH own AS (
    SELECT count(*) AS episodes, avg(t.episode_return)::float8 AS mean, avg(t.success::int)::float8 AS success,
        min(t.received_at) AS first, max(t.received_at) AS last
    FROM trajectories t
    WHERE t.namespace = $1 AND t.model_deployment = $2 AND t.policy_revision = $3 AND t.status <> 'withdrawn'
)
SELECT own.episodes, own.mean, own.success, count(t.*) AS other_episodes,
    avg(t.episode_return)::float8 AS other_mean, avg(t.success::int)::float8 AS other_success
FROM own LEFT JOIN trajectories t ON t.namespace = $1 AND t.model_deployment = $2 AND t.policy_revision <> $3
    AND t.status <> 'withdrawn' AND t.received_at BETWEEN own.first AND own.last
GROUP BY own.episodes, own.mean, own.success
"""
FEWEST = 10
"""Episodes of each side, below which nothing is said of a rollback."""


async def progress(db: database.Database, namespace: str, agent: str, weeks: int) -> deployment.AgentProgress:
    """The figures of the newest `weeks` weeks, this one included."""
    figures_by_week: dict[date, dict[str, Any]] = defaultdict(lambda: {"episodes": 0})
    async with db.tenant(namespace) as connection:
        begins = await connection.fetchval(_BEGINS, weeks)
        arguments = (namespace, agent, begins)
        for row in await connection.fetch(_EPISODES, *arguments):
            figures_by_week[row["week"]] |= dict(row)
        runs = f"{names.SUBJECT_TRAINING_STATUS}.{namespace}."
        for row in await connection.fetch(_TRAININGS, *arguments, SETTLED_HOURS, runs):
            figures_by_week[row["week"]] |= dict(row)
        subject = f"{names.SUBJECT_MODEL_DEPLOYED}.{namespace}."
        for row in await connection.fetch(_MOVES, namespace, agent, subject):
            event = deployment.ModelDeployed.model_validate_json(row["payload"])
            if event.outcome is not None and event.deployed_at >= begins:
                week = figures_by_week[_monday(event.deployed_at.astimezone(UTC).date())]
                week[event.outcome] = week.get(event.outcome, 0) + 1
                if event.outcome == "rollbacks":
                    false = await _was_no_worse(connection, namespace, event)
                    week["false_rollbacks"] = week.get("false_rollbacks", 0) + false
    for week in figures_by_week.values():
        promoted, ended = week.get("promotions", 0), week.get("promotions", 0) + week.get("rollbacks", 0)
        week["deployment_success_rate"] = promoted / ended if ended else None
    weeks_of_agent = [
        deployment.WeekOfAgent.model_validate({**figures, "week": week})
        for week, figures in sorted(figures_by_week.items())
    ]
    return deployment.AgentProgress(agent=agent, weeks=weeks_of_agent[-weeks:])


async def _was_no_worse(connection: Any, namespace: str, event: deployment.ModelDeployed) -> bool:
    """Whether a revision that was rolled back did as well as all others at the same time."""
    row = await connection.fetchrow(_COMPARED, namespace, event.model_deployment, event.revision)
    if row["episodes"] < FEWEST or row["other_episodes"] < FEWEST or row["mean"] < row["other_mean"]:
        return False
    comparable = row["success"] is not None and row["other_success"] is not None
    return not comparable or bool(row["success"] >= row["other_success"])


def _monday(day: date) -> date:
    return date.fromordinal(day.toordinal() - day.weekday())
