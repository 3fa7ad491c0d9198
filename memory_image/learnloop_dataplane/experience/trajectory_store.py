"""Writes trajectories. The same trajectory may come any number of times; it is stored and counted once."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from learnloop_api.wire.trajectory import Step, Trajectory
from learnloop_common.redaction.fields import safe_measurements
from learnloop_dataplane.encryption.data_keys import Owner
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher, StepLog
from learnloop_dataplane.experience.explored_actions import digest, explored, note_explored
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy.pseudonyms import METADATA_KEY
from learnloop_dataplane.privacy.redaction import redact, redact_text
from learnloop_dataplane.privacy.tombstones import refused

BASELINE_EPISODES = 100

_SEE_AGENTS = "INSERT INTO agents (namespace, name) SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING"
_READ_AGENTS = """
SELECT name, first_episodes FROM agents WHERE namespace = $1 AND name = ANY($2::text[]) ORDER BY name FOR UPDATE
"""
# clock_timestamp: taken after the agent's row is locked, so it is never before the agent's own `since`.
_INSERT = """
INSERT INTO trajectories (namespace, trajectory_id, agent_id, task, episode_id, model_deployment, policy_revision,
    started_at, ended_at, received_at, steps, status, episode_return, success, outcome_values, retrieval_ids, labels)
SELECT $1, t.trajectory_id, t.agent_id, t.task, t.episode_id, t.model_deployment, t.policy_revision,
    t.started_at, t.ended_at, clock_timestamp(), t.steps, t.status, t.episode_return, t.success,
    t.outcome_values, t.retrieval_ids, t.labels
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::timestamptz[],
    $9::timestamptz[], $10::int[], $11::text[], $12::float8[], $13::bool[], $14::jsonb[], $15::jsonb[], $16::jsonb[])
    AS t(trajectory_id, agent_id, task, episode_id, model_deployment, policy_revision, started_at, ended_at, steps,
         status, episode_return, success, outcome_values, retrieval_ids, labels)
ON CONFLICT DO NOTHING RETURNING trajectory_id, received_at
"""
_INSERT_STEPS = """
INSERT INTO training_transitions (namespace, trajectory_id, received_at, steps, last_observation)
SELECT $1, * FROM unnest($2::text[], $3::timestamptz[], $4::jsonb[], $5::jsonb[])
"""
_INSERT_RESULTS = """
INSERT INTO task_results (namespace, trajectory_id, task_type, result)
SELECT $1, * FROM unnest($2::text[], $3::text[], $4::jsonb[])
"""
_COUNT = """
UPDATE agents SET trajectories = agents.trajectories + t.n, last_trajectory_at = clock_timestamp(),
    first_episodes = agents.first_episodes + t.first, first_return_sum = agents.first_return_sum + t.total
FROM unnest($2::text[], $3::int[], $4::int[], $5::float8[]) AS t(name, n, first, total)
WHERE agents.namespace = $1 AND agents.name = t.name
"""


@dataclass(frozen=True)
class Row:
    """One trajectory as it goes into the tables: redacted, JSON columns encoded."""

    trajectory_id: str
    agent: str
    user: str | None
    ended_at: datetime
    episode_return: float
    columns: tuple[Any, ...]
    steps: str
    last_observation: str | None
    result: tuple[str, str] | None
    """Its type, and all of it."""
    explored: str = ""
    """Digest of the explored actions; "": there are none."""


def prepare(trajectory: Trajectory) -> Row:
    """Redacts and encodes. Ids stay as they are: they are what makes storing idempotent."""
    outcome = trajectory.outcome
    steps = redact([_step(step) for step in trajectory.steps])
    columns = (
        trajectory.trajectory_id,
        trajectory.agent,
        redact_text(trajectory.task),
        trajectory.episode_id,
        trajectory.model_deployment,
        redact_text(trajectory.policy_revision),
        trajectory.started_at,
        trajectory.ended_at,
        len(trajectory.steps),
        outcome.status,
        outcome.episode_return,
        outcome.success,
        _json(safe_measurements(outcome.values, redact_text)),
        _json(trajectory.retrieval_ids),
        _json(redact(trajectory.metadata)),
    )
    whose = (trajectory.metadata.get(METADATA_KEY), trajectory.ended_at)
    last = None if trajectory.last_observation is None else _json(redact(trajectory.last_observation))
    result, value = _result(trajectory), outcome.episode_return
    named = (trajectory.trajectory_id, trajectory.agent)
    return Row(*named, *whose, value, columns, _json(steps), last, result, digest(explored(steps)))


def _step(step: Step) -> dict[str, Any]:
    told = step.model_dump()
    if step.q_value is None:
        del told["q_value"]
    return told


def _result(trajectory: Trajectory) -> tuple[str, str] | None:
    result = trajectory.result
    return None if result is None else (result.task_type, _json(redact(result.model_dump())))


@dataclass(frozen=True)
class StoredTrajectories:
    """Ids that were new, and ids that may not be stored: erased, or of someone who opted out."""

    new: set[str]
    refused: set[str]


async def store(db: Database, namespace: str, rows: Sequence[Row], cipher: StepCipher = PLAIN) -> StoredTrajectories:
    """Stores the rows in one transaction, their steps as `cipher` makes them.

    Raises:
        Unavailable: nothing was written.
        asyncpg.DataError: a row holds something no column takes; nothing was written.
    """
    unique = {row.trajectory_id: row for row in rows}
    # Always in the same order, so that two writers of the same ids wait for one another and never in a circle.
    ordered = [unique[key] for key in sorted(unique)]
    async with db.tenant(namespace) as connection:
        unwanted = await refused(connection, namespace, ordered)
        ordered = [row for row in ordered if row.trajectory_id not in unwanted]
        if not ordered:
            return StoredTrajectories(set(), unwanted)
        agents = sorted({row.agent for row in ordered})
        await connection.execute(_SEE_AGENTS, namespace, agents)
        counted = {r["name"]: r["first_episodes"] for r in await connection.fetch(_READ_AGENTS, namespace, agents)}
        arrays = [list(column) for column in zip(*(row.columns for row in ordered), strict=True)]
        new = {r["trajectory_id"]: r["received_at"] for r in await connection.fetch(_INSERT, namespace, *arrays)}
        fresh = [row for row in ordered if row.trajectory_id in new]
        if fresh:
            plain = [StepLog(row.trajectory_id, row.steps, row.last_observation) for row in fresh]
            logs = await cipher.seal(connection, namespace, plain, [Owner(row.agent, row.user or "") for row in fresh])
            kept = [(log.trajectory_id, new[log.trajectory_id], log.steps, log.last_observation) for log in logs]
            await connection.execute(_INSERT_STEPS, namespace, *map(list, zip(*kept, strict=True)))
            told = [(row.trajectory_id, *row.result) for row in fresh if row.result is not None]
            if told:
                columns = [list(column) for column in zip(*told, strict=True)]
                await connection.execute(_INSERT_RESULTS, namespace, *columns)
            await note_explored(connection, namespace, [(row.agent, row.trajectory_id, row.explored) for row in fresh])
            await connection.execute(_COUNT, namespace, *_totals(fresh, counted))
    return StoredTrajectories(set(new), unwanted)


def _totals(rows: Sequence[Row], counted: dict[str, int]) -> tuple[list[str], list[int], list[int], list[float]]:
    """Per agent: new rows, how many of them belong to the baseline, and the sum of those returns."""
    by_agent: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_agent[row.agent].append(row.episode_return)
    names = sorted(by_agent)
    first = [by_agent[name][: max(0, BASELINE_EPISODES - counted.get(name, 0))] for name in names]
    return names, [len(by_agent[n]) for n in names], [len(f) for f in first], [sum(f) for f in first]


def _json(value: Any) -> str:
    return to_json(value, inf_nan_mode="null").decode()
