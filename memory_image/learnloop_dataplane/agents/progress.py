"""The specification's figures that can be counted, by week and agent. What retention took is not counted any more."""

from collections import defaultdict
from datetime import date
from typing import Any

from learnloop_api.wire.progress import AgentProgress, WeekOfAgent
from learnloop_dataplane.postgres.database import Database

SETTLED_HOURS = 24
"""A revision that nobody has played for so long, and that never served all, was taken back; a run that was silent for
so long has failed."""
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
WHERE t.namespace = $1 AND t.agent_id = $2 AND t.status <> 'withdrawn'
    AND t.received_at
        >= date_trunc('week', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - make_interval(weeks => $3 - 1)
GROUP BY 1
"""
# A run says in its manifest whom it trained. One without a manifest is known by its checkpoints, or by its name.
_TRAININGS = """
SELECT date_trunc('week', coalesce(r.beat_at, r.created_at) AT TIME ZONE 'UTC')::date AS week, count(*) AS trainings,
    avg((r.manifest IS NOT NULL)::int)::float8 AS training_success_rate,
    avg(((r.manifest #>> '{evaluation,mean}')::float8 - (r.manifest #>> '{baseline,mean}')::float8)
        / nullif(abs((r.manifest #>> '{baseline,mean}')::float8), 0))::float8 AS gain_per_training
FROM training_runs r
WHERE r.namespace = $1 AND (r.manifest ->> 'agent' = $2 OR r.manifest IS NULL AND (
        regexp_replace(r.job, '-[0-9]+$', '') = $2 AND r.job <> $2 OR EXISTS (SELECT 1 FROM model_checkpoints c
            WHERE c.namespace = $1 AND c.job = r.job AND c.agent_id = $2)))
    AND (r.manifest IS NOT NULL OR r.heartbeat ->> 'phase' = 'failed'
        OR coalesce(r.beat_at, r.created_at) < now() - make_interval(hours => $4))
    AND coalesce(r.beat_at, r.created_at)
        >= date_trunc('week', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - make_interval(weeks => $3 - 1)
GROUP BY 1
"""
_REVISIONS = """
SELECT t.model_deployment AS deployment, t.policy_revision AS revision, min(t.received_at) AS first,
    max(t.received_at) AS last, count(*) AS episodes, avg(t.episode_return)::float8 AS mean,
    avg(t.success::int)::float8 AS success, max(t.received_at) < now() - make_interval(hours => $4) AS settled
FROM trajectories t
WHERE t.namespace = $1 AND t.agent_id = $2 AND t.model_deployment IS NOT NULL AND t.status <> 'withdrawn'
    AND t.received_at
        >= date_trunc('week', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - make_interval(weeks => $3 - 1)
GROUP BY 1, 2
"""
_SERVED = """
SELECT o.payload::jsonb ->> 'model_deployment' AS deployment, o.payload::jsonb ->> 'revision' AS revision
FROM event_outbox o WHERE o.namespace = $1 AND o.subject = ANY($2::text[])
    AND coalesce(o.payload::jsonb ->> 'event', 'deployed') = 'deployed'
"""
_BESIDE = """
SELECT count(*) AS episodes, avg(t.episode_return)::float8 AS mean, avg(t.success::int)::float8 AS success
FROM trajectories t
WHERE t.namespace = $1 AND t.model_deployment = $2 AND t.policy_revision <> $3 AND t.status <> 'withdrawn'
    AND t.received_at BETWEEN $4 AND $5
"""
FEWEST = 10
"""Episodes of each side, below which nothing is said of a rollback."""


async def progress(db: Database, namespace: str, agent: str, weeks: int, deployed: str) -> AgentProgress:
    """The figures of the newest `weeks` weeks, this one included.

    Args:
        deployed: subject of the events of deployments in this namespace, without the deployment's name.

    Raises:
        Unavailable: PostgreSQL does not answer.
    """
    asked = (namespace, agent, weeks)
    async with db.tenant(namespace) as connection:
        found: dict[date, dict[str, Any]] = defaultdict(lambda: {"episodes": 0})
        for row in await connection.fetch(_EPISODES, *asked):
            found[row["week"]] |= dict(row)
        for row in await connection.fetch(_TRAININGS, *asked, SETTLED_HOURS):
            found[row["week"]] |= dict(row)
        revisions = await connection.fetch(_REVISIONS, *asked, SETTLED_HOURS)
        subjects = sorted({f"{deployed}.{row['deployment']}" for row in revisions})
        served = {tuple(row) for row in await connection.fetch(_SERVED, namespace, subjects)}
        for row in revisions:
            serves = (row["deployment"], row["revision"]) in served
            if serves or row["settled"]:
                false = not serves and await _was_no_worse(connection, namespace, row)
                _count(found[_monday(row["first"].date())], serves=serves, false=false)
    for week in found.values():
        if tried := week.get("deployments"):
            week["deployment_success_rate"] = 1.0 - week["rollbacks"] / tried
    told = [WeekOfAgent.model_validate({**figures, "week": week}) for week, figures in sorted(found.items())]
    return AgentProgress(agent=agent, weeks=told[-weeks:])


async def _was_no_worse(connection: Any, namespace: str, tried: Any) -> bool:
    """Whether a revision that was taken back did as well as all others at the same time."""
    key = (tried["deployment"], tried["revision"], tried["first"], tried["last"])
    beside = await connection.fetchrow(_BESIDE, namespace, *key)
    if tried["episodes"] < FEWEST or beside["episodes"] < FEWEST or tried["mean"] < beside["mean"]:
        return False
    known = tried["success"] is not None and beside["success"] is not None
    return not known or bool(tried["success"] >= beside["success"])


def _count(week: dict[str, Any], *, serves: bool, false: bool) -> None:
    for name, more in (("deployments", True), ("rollbacks", not serves), ("false_rollbacks", false)):
        week[name] = week.get(name, 0) + more


def _monday(day: date) -> date:
    return date.fromordinal(day.toordinal() - day.weekday())
