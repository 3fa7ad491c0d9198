"""The specification's figures that can be counted, by week and agent. What retention took is not counted any more."""

from collections import defaultdict
from datetime import UTC, date
from typing import Any

from learnloop_api import names
from learnloop_api.wire.deployment import AgentProgress, ModelDeployed, WeekOfAgent
from learnloop_dataplane.postgres.database import Database

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
# such an event names its agent in its manifest; without one its checkpoints or its own name do.
_TRAININGS = """
WITH told AS (
    SELECT o.payload::jsonb AS run, o.created_at AS at FROM event_outbox o
    WHERE o.namespace = $1 AND starts_with(o.subject, $5) AND o.created_at >= $3
        AND o.payload::jsonb ->> 'status' IN ('completed', 'failed')
), ended AS (
    SELECT at, run ->> 'phase' = 'validated' AS proven, run FROM told WHERE run ->> 'agent' = $2
    UNION ALL
    SELECT coalesce(r.beat_at, r.created_at), r.manifest IS NOT NULL, r.manifest
    FROM training_runs r
    WHERE r.namespace = $1 AND (r.manifest ->> 'agent' = $2 OR r.manifest IS NULL AND (
            regexp_replace(r.job, '-[0-9]+$', '') = $2 AND r.job <> $2 OR EXISTS (SELECT 1 FROM model_checkpoints c
                WHERE c.namespace = $1 AND c.job = r.job AND c.agent_id = $2)))
        AND (r.manifest IS NOT NULL OR r.heartbeat ->> 'phase' = 'failed'
            OR coalesce(r.beat_at, r.created_at) < now() - make_interval(hours => $4))
        AND coalesce(r.beat_at, r.created_at) >= $3
        AND NOT EXISTS (SELECT 1 FROM told WHERE told.run ->> 'job' = r.job AND told.at >= r.created_at)
), judged AS (
    SELECT at, proven, CASE WHEN (run #>> '{evaluation,episodes}')::bigint IS DISTINCT FROM 0 THEN
        (run #>> '{evaluation,mean}')::float8 - (run #>> '{baseline,mean}')::float8 END AS gain
    FROM ended
)
SELECT date_trunc('week', at AT TIME ZONE 'UTC')::date AS week, count(*) AS trainings,
    avg(proven::int)::float8 AS training_success_rate, count(gain) AS gains, avg(gain)::float8 AS gain_per_training
FROM judged GROUP BY 1
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


async def progress(db: Database, namespace: str, agent: str, weeks: int) -> AgentProgress:
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
            event = ModelDeployed.model_validate_json(row["payload"])
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
        WeekOfAgent.model_validate({**figures, "week": week}) for week, figures in sorted(figures_by_week.items())
    ]
    return AgentProgress(agent=agent, weeks=weeks_of_agent[-weeks:])


async def _was_no_worse(connection: Any, namespace: str, event: ModelDeployed) -> bool:
    """Whether a revision that was rolled back did as well as all others at the same time."""
    row = await connection.fetchrow(_COMPARED, namespace, event.model_deployment, event.revision)
    if row["episodes"] < FEWEST or row["other_episodes"] < FEWEST or row["mean"] < row["other_mean"]:
        return False
    comparable = row["success"] is not None and row["other_success"] is not None
    return not comparable or bool(row["success"] >= row["other_success"])


def _monday(day: date) -> date:
    return date.fromordinal(day.toordinal() - day.weekday())
