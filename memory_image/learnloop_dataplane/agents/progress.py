"""The specification's figures that can be counted, by week and agent. What retention took is not counted any more."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from learnloop_api import names
from learnloop_api.wire.deployment import AgentProgress, WeekOfAgent
from learnloop_dataplane.postgres.database import Database

SETTLED_HOURS = 24
"""A revision that nobody has played for so long, and that never served all, was given up; a run that was silent for so
long has failed."""
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
# The operator tells how each run ended. That outlives the run, which goes with its TrainingJob. A run that nobody told
# the end of says in its manifest whom it trained; without one it is known by its checkpoints, or by its name.
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
# Of all times: a revision that was played before is no deployment of these weeks.
_REVISIONS = """
SELECT t.model_deployment AS deployment, t.policy_revision AS revision, min(t.received_at) AS first,
    max(t.received_at) AS last, count(*) AS episodes, avg(t.episode_return)::float8 AS mean,
    avg(t.success::int)::float8 AS success, max(t.received_at) < now() - make_interval(hours => $3) AS settled
FROM trajectories t
WHERE t.namespace = $1 AND t.agent_id = $2 AND t.model_deployment IS NOT NULL AND t.status <> 'withdrawn'
GROUP BY 1, 2
"""
# What is named as the one before, or as what serves now, has served everybody, too.
_MOVES = """
SELECT o.payload::jsonb ->> 'model_deployment' AS deployment, o.payload::jsonb ->> 'revision' AS revision,
    o.payload::jsonb ->> 'previous_revision' AS previous, o.created_at AS at,
    coalesce(o.payload::jsonb ->> 'event', 'deployed') = 'deployed' AS serves
FROM event_outbox o WHERE o.namespace = $1 AND o.subject = ANY($2::text[]) ORDER BY o.created_at, o.message_id
"""
_BESIDE = """
SELECT count(*) AS episodes, avg(t.episode_return)::float8 AS mean, avg(t.success::int)::float8 AS success
FROM trajectories t
WHERE t.namespace = $1 AND t.model_deployment = $2 AND t.policy_revision <> $3 AND t.status <> 'withdrawn'
    AND t.received_at BETWEEN $4 AND $5
"""
FEWEST = 10
"""Episodes of each side, below which nothing is said of a rollback."""


async def progress(db: Database, namespace: str, agent: str, weeks: int) -> AgentProgress:
    """The figures of the newest `weeks` weeks, this one included.

    Raises:
        Unavailable: PostgreSQL does not answer.
    """
    found: dict[date, dict[str, Any]] = defaultdict(lambda: {"episodes": 0})
    async with db.tenant(namespace) as connection:
        begins = await connection.fetchval(_BEGINS, weeks)
        asked = (namespace, agent, begins)
        for row in await connection.fetch(_EPISODES, *asked):
            found[row["week"]] |= dict(row)
        runs = f"{names.SUBJECT_TRAINING_STATUS}.{namespace}."
        for row in await connection.fetch(_TRAININGS, *asked, SETTLED_HOURS, runs):
            found[row["week"]] |= dict(row)
        revisions = await connection.fetch(_REVISIONS, namespace, agent, SETTLED_HOURS)
        subjects = sorted({f"{names.SUBJECT_MODEL_DEPLOYED}.{namespace}.{row['deployment']}" for row in revisions})
        rollouts = _Rollouts(await connection.fetch(_MOVES, namespace, subjects))
        for row in revisions:
            known = (row["deployment"], row["revision"])
            first = min(row["first"], rollouts.since.get(known, row["first"]))
            serves = rollouts.serves.get(known)
            if first >= begins and (serves is not None or row["settled"]):
                false = not serves and await _was_no_worse(connection, namespace, row)
                _count(found[_monday(first.date())], serves=bool(serves), false=false)
    for week in found.values():
        if tried := week.get("deployments"):
            week["deployment_success_rate"] = 1.0 - week["rollbacks"] / tried
    told = [WeekOfAgent.model_validate({**figures, "week": week}) for week, figures in sorted(found.items())]
    return AgentProgress(agent=agent, weeks=told[-weeks:])


class _Rollouts:
    """What became of each (deployment, revision), from rows of `_MOVES`."""

    def __init__(self, moves: Sequence[Any]) -> None:
        self.serves: dict[tuple[str, str], bool] = {}
        """Whether it came to serve everybody and was not rolled back since; absent: nobody said."""
        self.since: dict[tuple[str, str], datetime] = {}
        """When it was first heard of."""
        for move in moves:
            known = (move["deployment"], move["revision"])
            self.serves[known] = move["serves"]
            self.since.setdefault(known, move["at"])
            if move["previous"] is not None:
                self.serves.setdefault((move["deployment"], move["previous"]), True)


async def _was_no_worse(connection: Any, namespace: str, tried: Any) -> bool:
    """Whether a revision that was rolled back, or given up, did as well as all others at the same time."""
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
