"""Logged episodes to learn from, newest first and page by page, from PostgreSQL or from the warehouse.

A page begins after the episode that the one before ended with, by the order of arrival. So what arrives while somebody
reads moves no page: nothing is read twice and nothing is passed over.

Explored actions are {timestamp, agent_id, action_hash, reward, q_value, exploration_flag}. The steps themselves keep
them, as long and as safely as everything else of an episode. In the transaction that stores episodes a record of the
audit chain names each one's explored actions by one digest. So the chain proves that the actions read today are those
that were stored.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any

import orjson
from pydantic_core import to_json

from learnloop_api.wire.trajectory import OPTED_IN, EpisodeSelection
from learnloop_dataplane import data_keys, errors
from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.postgres.database import STEPS_OF_EACH, Database
from learnloop_dataplane.warehouse import ClickHouse

MOST = 20
"""Episodes of a page."""
Place = tuple[int, str | None]
"""Of an episode in the order of arrival: its number, or in the warehouse its microsecond and its id."""
_NEWEST = 2**63 - 1
_ALL_TIME = datetime(1970, 1, 1, tzinfo=UTC), datetime(2261, 1, 1, tzinfo=UTC)
_MOST_MICROSECONDS = (_ALL_TIME[1] - _ALL_TIME[0]) // timedelta(microseconds=1)
# A page ends here, however few of the episodes it looked at are wanted: no filter reads a whole history in one page.
LOOKED_AT = 2000
_END = """
SELECT seq FROM trajectories WHERE namespace = $1 AND agent_id = $2 AND seq < $3 ORDER BY seq DESC OFFSET $4 LIMIT 1
"""
MOST_JOINT = 100
"""Episodes of one agent, and of all others, that share a joint task; a name that more have names no task."""
# What others' tasks credit this episode's agent with, divided by how many of its episodes share the task. A name with a
# mark of redaction may be that of several tasks.
_BY_OTHERS = f"""
SELECT CASE WHEN count(*) <= {MOST_JOINT} THEN sum(c.learned_credit) / max(own.episodes) END
FROM (SELECT count(*) AS episodes FROM (
        SELECT FROM trajectories own WHERE own.namespace = t.namespace AND own.joint_task = t.joint_task
            AND own.agent_id = t.agent_id AND own.status <> 'withdrawn' LIMIT {MOST_JOINT + 1}) few) own
CROSS JOIN LATERAL (
    SELECT o.trajectory_id FROM trajectories o WHERE own.episodes <= {MOST_JOINT} AND o.namespace = t.namespace
        AND o.joint_task = t.joint_task AND o.agent_id <> t.agent_id LIMIT {MOST_JOINT + 1}) o
LEFT JOIN LATERAL (SELECT c.learned_credit FROM task_credits c WHERE c.namespace = t.namespace
    AND c.trajectory_id = o.trajectory_id AND c.agent_id = t.agent_id OFFSET 0) c ON true
"""
# The page comes first, and all else is looked up for its rows alone: a plan that is made for any arguments would join
# the agent's whole history.
_PAGE = f"""
SELECT t.seq, t.trajectory_id, t.policy_revision, t.status, t.episode_return, t.success,
    t.outcome_values::text AS outcome_values, s.steps::text AS log, s.last_observation::text AS last_observation,
    (SELECT jsonb_object_agg(c.component, c.value) FILTER (WHERE c.value IS NOT NULL) FROM task_scores c
        WHERE c.namespace = t.namespace AND c.trajectory_id = t.trajectory_id AND c.reward_policy = $13
            AND c.reward_policy_revision = $14)::text AS scores,
    (SELECT max(c.learned_reward) - coalesce(sum(c.learned_credit) FILTER (WHERE c.agent_id = t.agent_id), 0)
        FROM task_credits c
        WHERE c.namespace = t.namespace AND c.trajectory_id = t.trajectory_id) AS credited_to_others,
    CASE WHEN t.status <> 'withdrawn' AND t.joint_task ~ '^[^<>]+$' THEN ({_BY_OTHERS}) END AS credited_by_others
FROM (SELECT t.* FROM trajectories t
    WHERE t.namespace = $1 AND t.agent_id = $2 AND t.seq < $3 AND t.seq >= $15
        AND ($5::timestamptz IS NULL OR t.received_at >= $5) AND ($6::timestamptz IS NULL OR t.received_at < $6)
        AND ($7::text[] IS NULL OR t.task = ANY($7)) AND ($8::text[] IS NULL OR t.policy_revision = ANY($8))
        AND ($9::float8 IS NULL OR t.reward >= $9) AND ($10::float8 IS NULL OR t.reward <= $10)
        AND ($11::bool IS NULL OR t.success = $11) AND (NOT $12::bool OR t.labels ->> '{OPTED_IN}' = 'true')
    ORDER BY t.seq DESC LIMIT $4) t
{STEPS_OF_EACH}
ORDER BY t.seq DESC
"""
# What was asked to be erased and may still lie in the warehouse.
_ERASED = "SELECT attribute, value, requested_at FROM warehouse_erasures WHERE namespace = $1"
_WAREHOUSED = (
    "trajectory_id",
    "agent_id",
    "user_hash",
    "received_at",
    "policy_revision",
    "status",
    "episode_return",
    "success",
    "outcome_values",
    "log",
    "last_observation",
)


class Datasets:
    """Both sources."""

    def __init__(
        self, db: Database, warehouse: ClickHouse | None, cipher: data_keys.StepCipher = data_keys.PLAIN
    ) -> None:
        self._db, self._warehouse, self._cipher = db, warehouse, cipher

    async def page(
        self, namespace: str, agent: str, wanted: EpisodeSelection, limit: int, after: Place | None
    ) -> tuple[bytes, Place | None]:
        """At most `limit` episodes as JSON (wire.EpisodePage without `next`), and after which one the next page begins.

        A page may have fewer, or none, and still be followed by another one.

        Args:
            after: the second part of the answer before; None: from the newest on.

        Raises:
            Invalid: the source is missing, or `after` belongs to another source.
        """
        if wanted.source == "clickhouse":
            return await self._from_warehouse(namespace, agent, wanted, limit, after)
        if after is not None and after[1] is not None:
            raise errors.Invalid("this page is of another source; begin without it", field="after", value=after)
        place = _NEWEST if after is None else after[0]
        bounds = (wanted.since, wanted.until, wanted.tasks or None, wanted.model_revisions or None)
        given = (*bounds, wanted.min_reward, wanted.max_reward, wanted.success, wanted.opted_in)
        scored_by = wanted.reward_policy, wanted.reward_policy_revision
        async with self._db.tenant(namespace) as connection:
            end = await connection.fetchval(_END, namespace, agent, place, LOOKED_AT - 1)
            rows = await connection.fetch(_PAGE, namespace, agent, place, limit, *given, *scored_by, end or 0)
        if len(rows) == limit:
            end = rows[-1]["seq"]
        following = None if end is None else (end, None)
        return await self._body(namespace, rows), following

    async def _from_warehouse(
        self, namespace: str, agent: str, wanted: EpisodeSelection, limit: int, after: Place | None
    ) -> tuple[bytes, Place | None]:
        if self._warehouse is None:
            fix = "this installation has no warehouse; set source to postgresql, or give the chart warehouse.dsn"
            raise errors.ApiError(409, fix, field="source", value=wanted.source)  # the request itself is valid
        if after is not None and after[1] is None:
            raise errors.Invalid("this page is of another source; begin without it", field="after", value=after)
        since, until = (
            min(max(moment, _ALL_TIME[0]), _ALL_TIME[1])  # the warehouse refuses what no episode can be of
            for moment in (wanted.since or _ALL_TIME[0], wanted.until or _ALL_TIME[1])
        )
        before = ""
        if after is not None:
            until, before = _ALL_TIME[0] + timedelta(microseconds=min(after[0], _MOST_MICROSECONDS)), after[1] or ""
        rows: Sequence[Mapping[str, Any]] = await self._warehouse.page(
            namespace,
            _WAREHOUSED,
            agents=[agent],
            since=since,
            until=until,
            before=before,
            size=limit,
            only=wanted,
        )
        async with self._db.tenant(namespace) as connection:
            erased = await connection.fetch(_ERASED, namespace)
        following = None
        if len(rows) == limit:
            last = rows[-1]
            microseconds = (last["received_at"].replace(tzinfo=UTC) - _ALL_TIME[0]) // timedelta(microseconds=1)
            following = (microseconds, last["trajectory_id"])
        return await self._body(namespace, [row for row in rows if not _gone(row, erased)]), following

    async def _body(self, namespace: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
        """Steps and values go through as they are stored. An episode whose key was destroyed is left out."""
        opened = await self._cipher.open_rows(self._db, namespace, rows)
        return b'{"trajectories":[%b]' % b",".join(_episode(row) for row in opened if row["log"] is not None)


def _gone(row: Mapping[str, Any], erased: Sequence[Any]) -> bool:
    """Did somebody have it erased, where the warehouse has not come to it yet?"""
    received = row["received_at"].replace(tzinfo=UTC)
    return any(row.get(item["attribute"]) == item["value"] and received <= item["requested_at"] for item in erased)


def _episode(row: Mapping[str, Any]) -> bytes:
    facts = {name: row[name] for name in ("trajectory_id", "policy_revision", "status", "episode_return", "success")}
    values, log, last = (row[name] for name in ("outcome_values", "log", "last_observation"))
    scores = row.get("scores") or "{}"  # the warehouse keeps none, and no credits
    facts |= {name: row.get(name) for name in ("credited_to_others", "credited_by_others")}
    parts = [(part or "{}").encode() for part in (values, scores)] + [log.encode(), (last or "null").encode()]
    return b'%b,"values":%b,"scores":%b,"steps":%b,"last_observation":%b}' % (to_json(facts)[:-1], *parts)


ACTION = "exploration.logged"
MOST_EPISODES = 50
"""Of a page, and of one record of the chain."""

_EXPLORED = f"""
SELECT t.seq, t.trajectory_id, t.policy_revision, t.ended_at, s.steps
FROM (SELECT * FROM trajectories t WHERE t.namespace = $1 AND t.agent_id = $2 AND t.seq < $3
    ORDER BY t.seq DESC LIMIT $4) t {STEPS_OF_EACH} ORDER BY t.seq DESC
"""
_NEWEST_SEQ = 2**63 - 1


def action_hash(action: Any) -> str:
    """SHA-256 of an action as JSON: keys in order, no spaces, whole numbers without a point."""
    if type(action) is int:
        return _of_whole(action)
    return sha256(json.dumps(_plain(action), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def explored(steps: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, float, float | None]]:
    """Of each explored action its step (from 0), its hash, its reward and the policy's value of it."""
    return [
        (place, action_hash(step["action"]), float(step.get("reward") or 0.0), _value(step))
        for place, step in enumerate(steps)
        if step.get("exploration")
    ]


def digest(actions: Sequence[tuple[int, str, float, float | None]]) -> str:
    """SHA-256 over them in their order, as JSON; "" of none."""
    return sha256(orjson.dumps(actions)).hexdigest() if actions else ""


async def note_explored(connection: Any, namespace: str, digests: Sequence[tuple[str, str, str]]) -> None:
    """Records of the audit chain about stored episodes: (agent, trajectory, digest), "" where nothing was explored."""
    by_agent: dict[str, dict[str, str]] = {}
    for agent, trajectory, value in digests:
        if value:
            by_agent.setdefault(agent, {})[trajectory] = value
    for agent, episodes in sorted(by_agent.items()):
        ids = sorted(episodes)
        for first in range(0, len(ids), MOST_EPISODES):
            some = {each: episodes[each] for each in ids[first : first + MOST_EPISODES]}
            await note(connection, namespace, ACTION, f"agent/{agent}", {"episodes": some})


class ExploredActions:
    """Reads them back."""

    def __init__(self, db: Database, cipher: data_keys.StepCipher = data_keys.PLAIN) -> None:
        self._db, self._cipher = db, cipher

    async def page(self, namespace: str, agent: str, limit: int, before: int | None) -> dict[str, Any]:
        """The newest `limit` episodes of an agent, newest first, with their explored actions; `next` is `before` of the
        page that follows, None on the last one.
        """
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_EXPLORED, namespace, agent, _NEWEST_SEQ if before is None else before, limit)
            logs = await self._cipher.open(
                connection, namespace, [data_keys.StepLog(row["trajectory_id"], row["steps"]) for row in rows]
            )
        episodes = [_explored_episode(agent, row, log) for row, log in zip(rows, logs, strict=True)]
        return {
            "episodes": [episode for episode in episodes if episode["actions"]],
            "next": rows[-1]["seq"] if len(rows) == limit else None,
        }


def _explored_episode(agent: str, row: Mapping[str, Any], log: data_keys.StepLog) -> dict[str, Any]:
    actions = explored(orjson.loads(log.steps or "[]"))
    at = row["ended_at"].isoformat()
    return {
        "trajectory_id": row["trajectory_id"],
        "policy_revision": row["policy_revision"],
        "sha256": digest(actions),
        "actions": list(_actions(agent, at, actions)),
    }


def _actions(agent: str, at: str, actions: Sequence[tuple[int, str, float, float | None]]) -> Iterator[dict[str, Any]]:
    for place, hashed, reward, value in actions:
        yield {
            "timestamp": at,
            "agent_id": agent,
            "step": place,
            "action_hash": hashed,
            "reward": reward,
            "q_value": value,
            "exploration_flag": True,
        }


def _value(step: Mapping[str, Any]) -> float | None:
    value = step.get("q_value")
    return None if value is None else float(value)


@lru_cache(maxsize=4096)
def _of_whole(action: int) -> str:
    return sha256(str(action).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """The value as it comes back from the database: there a whole number has no point, and a zero no sign."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
