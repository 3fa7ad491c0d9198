"""Experience on its way in, redacted, each piece stored once: episodes, by the stream or straight, and preferences."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import orjson
from pydantic_core import to_json

from learnloop_api import names
from learnloop_api.wire.language import MAX_TEXT, Preference
from learnloop_api.wire.trajectory import MAX_REVISION, MAX_TASK, Step, Trajectory
from learnloop_common.redaction.redactor import safe_measurements
from learnloop_dataplane import data_keys, errors
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.concurrency.limits import in_thread_if_large
from learnloop_dataplane.experience.datasets import digest, explored, note_explored
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.event_outbox import tenants_id
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.privacy import METADATA_KEY, Users, hold_off, redact, redact_text, refused

if TYPE_CHECKING:
    from learnloop_dataplane.nats.connection import Bus, Room

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
ON CONFLICT DO NOTHING RETURNING trajectory_id
"""
_INSERT_STEPS = """
INSERT INTO training_transitions (namespace, trajectory_id, steps, last_observation)
SELECT $1, * FROM unnest($2::text[], $3::jsonb[], $4::jsonb[])
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
    fields = step.model_dump()
    if step.q_value is None:
        del fields["q_value"]
    return fields


def _result(trajectory: Trajectory) -> tuple[str, str] | None:
    result = trajectory.result
    return None if result is None else (result.task_type, _json(redact(result.model_dump())))


@dataclass(frozen=True)
class StoredTrajectories:
    """Ids that were new, and ids that may not be stored: erased, or of someone who opted out."""

    new: set[str]
    refused: set[str]


async def store(
    db: Database, namespace: str, rows: Sequence[Row], cipher: data_keys.StepCipher = data_keys.PLAIN
) -> StoredTrajectories:
    """Stores the rows in one transaction, their steps as `cipher` makes them.

    Raises:
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
        new = {row["trajectory_id"] for row in await connection.fetch(_INSERT, namespace, *arrays)}
        fresh = [row for row in ordered if row.trajectory_id in new]
        if fresh:
            plain = [data_keys.StepLog(row.trajectory_id, row.steps, row.last_observation) for row in fresh]
            logs = await cipher.seal(connection, namespace, plain)
            sealed = [(log.trajectory_id, log.steps, log.last_observation) for log in logs]
            await connection.execute(_INSERT_STEPS, namespace, *map(list, zip(*sealed, strict=True)))
            results = [(row.trajectory_id, *row.result) for row in fresh if row.result is not None]
            if results:
                columns = [list(column) for column in zip(*results, strict=True)]
                await connection.execute(_INSERT_RESULTS, namespace, *columns)
            await note_explored(connection, namespace, [(row.agent, row.trajectory_id, row.explored) for row in fresh])
            await connection.execute(_COUNT, namespace, *_totals(fresh, counted))
    return StoredTrajectories(new, unwanted)


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


@dataclass(frozen=True, slots=True)
class Accepted:
    """The fate of an episode: a duplicate or not, stored or not (its person opted out, or it was erased)."""

    duplicate: bool
    stored: bool


class TrajectoryIntake:
    """Accepts episodes of all namespaces.

    Args:
        stream: the connection to NATS and the room in its streams; None: episodes go straight into PostgreSQL.
        arrived: called with a namespace in which an episode was stored: it wakes the reward worker (assembly/).
    """

    def __init__(
        self,
        db: Database,
        users: Users,
        metrics: Metrics,
        stream: "tuple[Bus, Room] | None",
        arrived: Callable[[str], None],
        cipher: data_keys.StepCipher = data_keys.PLAIN,
    ) -> None:
        self._cipher = cipher
        self._db = db
        self._users = users
        self._metrics = metrics
        self._stream = stream
        self._arrived = arrived

    async def accept(self, namespace: str, trajectory: Trajectory) -> Accepted:
        """Keeps one episode; it is durable when this returns.

        Raises:
            ApiError: 503, the stream is full and this namespace has its share of it.
        """
        shielded = (await self._users.shield(namespace, {0: trajectory}))[0]
        if shielded is None:
            self._metrics.count("opted_out", namespace)
            self._metrics.count("attempts", namespace)
            return Accepted(duplicate=False, stored=False)
        if self._stream is None:
            return await self._store(namespace, shielded)
        # From here on the consumer in nats_workers.py stores it and counts what becomes of it.
        bus, room = self._stream
        subject = f"{names.SUBJECT_TRAJECTORY}.{namespace}.{shielded.agent}"
        # What came by NATS already is known again: the SDK sends this id there.
        message_id = tenants_id(namespace, subject, f"{namespace}/{shielded.trajectory_id}")
        try:
            ack = await bus.publish(subject, await in_thread_if_large(namespace, redacted, shielded), message_id)
        except errors.NoRoom:  # it is an Unavailable, too
            # Full of other namespaces' episodes: this one does not wait behind them.
            try:
                room.admit(namespace)
            except errors.NoRoom:
                self._metrics.not_collected(namespace, "no_room")
                raise
            return await self._store(namespace, shielded)
        except errors.Unavailable:
            self._metrics.not_collected(namespace, "unavailable")
            raise
        return Accepted(duplicate=bool(ack.duplicate), stored=True)

    async def _store(self, namespace: str, trajectory: Trajectory) -> Accepted:
        row = await in_thread_if_large(namespace, prepare, trajectory)
        try:
            stored = await store(self._db, namespace, [row], self._cipher)
        except errors.Unavailable:
            self._metrics.not_collected(namespace, "unavailable")
            raise
        self._metrics.count("attempts", namespace)
        if stored.refused:
            return Accepted(duplicate=False, stored=False)
        if stored.new:
            self._metrics.agents.trajectory(namespace, trajectory.agent, safe_version(trajectory.policy_revision))
            self._arrived(namespace)
        return Accepted(duplicate=not stored.new, stored=True)


def safe_version(policy_revision: str) -> str:
    """The name of a model version as tables, streams and metrics may have it."""
    return redact_text(policy_revision)[:MAX_REVISION]


def redacted(trajectory: Trajectory) -> bytes:
    """The message as it may lie in the stream for a month."""
    body = trajectory.model_dump()
    for field in ("metadata", "steps", "last_observation", "result"):
        body[field] = redact(body[field])
    body["task"] = redact_text(trajectory.task)[:MAX_TASK]  # a mark may be longer than what it stands for
    body["policy_revision"] = safe_version(trajectory.policy_revision)
    body["outcome"]["values"] = safe_measurements(trajectory.outcome.values, redact_text)
    return to_json(body)


MOST = 20
"""Preferences of a page: each may hold two whole conversations."""
MOST_OF_AGENT = 100_000
"""As many as a run reads; of more, the oldest go."""
_PUT = """
INSERT INTO preferences (namespace, preference_id, agent_id, user_hash, sessions, body)
VALUES ($1, $2, $3, $4, $5::text[], $6) ON CONFLICT (namespace, preference_id) DO NOTHING RETURNING seq
"""
_TRIM = """
DELETE FROM preferences WHERE namespace = $1 AND agent_id = $2 AND seq <= (
    SELECT seq FROM preferences WHERE namespace = $1 AND agent_id = $2 ORDER BY seq DESC OFFSET $3 LIMIT 1)
"""
_ERASED = """
SELECT 1 FROM erasures WHERE namespace = $1 AND subject = ANY($2::text[]) AND erased_at >= $3 LIMIT 1
"""
_PAGE = """
SELECT seq, body::text AS body FROM preferences WHERE namespace = $1 AND agent_id = $2 AND seq < $3
ORDER BY seq DESC LIMIT $4
"""
_NEWEST = 2**63 - 1


class Preferences:
    """Of all namespaces."""

    def __init__(self, db: Database, users: Users) -> None:
        self._db, self._users = db, users

    async def give(self, namespace: str, preference: Preference) -> Accepted:
        """Keep one; the same id again is the same preference. Not stored: the person opted out, or they or the agent
        were erased since.
        """
        body = await in_thread_if_large(namespace, redacted_preference, preference)
        sessions = sorted({turn.session for one in (preference.chosen, preference.rejected) for turn in one.turns})
        async with self._db.tenant(namespace) as connection:
            user: str | None = None
            if preference.user_id is not None:
                user = (await self._users.hashes(connection, namespace, [preference.user_id]))[preference.user_id]
            await hold_off(connection, namespace)
            if user is not None and await self._users.opted_out(connection, namespace, [user]):
                return Accepted(duplicate=False, stored=False)
            subjects = [f"agent/{preference.agent}", *([f"user/{user}"] if user is not None else [])]
            if await connection.fetchval(_ERASED, namespace, subjects, preference.at):
                return Accepted(duplicate=False, stored=False)
            body["user_id"] = user
            written = to_json(body).decode()
            key = (namespace, preference.preference_id, preference.agent, user, sessions)
            seq = await connection.fetchval(_PUT, *key, written)
            if seq is None:
                return Accepted(duplicate=True, stored=True)
            if seq % 1000 == 0:  # now and then is enough: it only bounds what a namespace may fill
                await connection.execute(_TRIM, namespace, preference.agent, MOST_OF_AGENT)
            detail = {"agent": preference.agent} | ({"user": user} if user is not None else {})
            await note(connection, namespace, "preference.given", f"preference/{preference.preference_id}", detail)
        return Accepted(duplicate=False, stored=True)

    async def page(self, namespace: str, agent: str, limit: int, after: str | None) -> bytes:
        """At most `limit` of them as JSON (wire.PreferencePage), newest first.

        Raises:
            Invalid: `after` is not the `next` of a page.
        """
        if after is not None and not (after.isascii() and after.isdigit() and len(after) <= 18):
            raise errors.Invalid("not the next of a page; send it as it was answered", field="after", value=after)
        async with self._db.tenant(namespace) as connection:
            before = _NEWEST if after is None else int(after)
            rows = await connection.fetch(_PAGE, namespace, agent, before, limit)
        following = str(rows[-1]["seq"]) if len(rows) == limit else None
        bodies = b",".join(row["body"].encode() for row in rows)
        return b'{"preferences":[%b],"next":%b}' % (bodies, orjson.dumps(following))


def redacted_preference(preference: Preference) -> dict[str, Any]:
    """As it may lie here. Ids of tokens stay: who recorded the turns redacts, or leaves out, what they say."""
    body = preference.model_dump(mode="json")
    for message in body["messages"]:
        message["content"] = redact_text(message["content"])[:MAX_TEXT]
    for answer in (body["chosen"], body["rejected"]):
        if answer["text"] is not None:
            answer["text"] = redact_text(answer["text"])[:MAX_TEXT]
        for turn in answer["turns"]:
            turn["tool_calls"], turn["tool_results"] = redact(turn["tool_calls"]), redact(turn["tool_results"])
    return body
