"""Explored actions of agents: read back from stored steps, and recorded in the audit chain.

Each action is {timestamp, agent_id, action_hash, reward, q_value, exploration_flag}. The steps themselves keep them, as
long and as safely as everything else of an episode: sealed, erased and ended by retention with it. In the transaction
that stores episodes a record of the audit chain names each one's explored actions by one digest. So the
chain proves that the actions read today are those that were stored.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

import orjson

from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.encryption.step_cipher import PLAIN, StepCipher, StepLog
from learnloop_dataplane.postgres.database import STEPS_OF_EACH, Database

ACTION = "exploration.logged"
MOST_EPISODES = 50
"""Of a page, and of one record of the chain."""

_PAGE = f"""
SELECT t.seq, t.trajectory_id, t.policy_revision, t.ended_at, s.steps
FROM (SELECT * FROM trajectories t WHERE t.namespace = $1 AND t.agent_id = $2 AND t.seq < $3
    ORDER BY t.seq DESC LIMIT $4) t {STEPS_OF_EACH} ORDER BY t.seq DESC
"""
_NEWEST = 2**63 - 1


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


def digest(found: Sequence[tuple[int, str, float, float | None]]) -> str:
    """SHA-256 over them in their order, as JSON; "" of none."""
    return sha256(orjson.dumps(found)).hexdigest() if found else ""


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

    def __init__(self, db: Database, cipher: StepCipher = PLAIN) -> None:
        self._db, self._cipher = db, cipher

    async def page(self, namespace: str, agent: str, limit: int, before: int | None) -> dict[str, Any]:
        """The newest `limit` episodes of an agent, newest first, with their explored actions; `next` is `before` of the
        page that follows, None on the last one.
        """
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_PAGE, namespace, agent, _NEWEST if before is None else before, limit)
            logs = await self._cipher.open(
                connection, namespace, [StepLog(row["trajectory_id"], row["steps"]) for row in rows]
            )
        episodes = [_episode(agent, row, log) for row, log in zip(rows, logs, strict=True)]
        return {
            "episodes": [episode for episode in episodes if episode["actions"]],
            "next": rows[-1]["seq"] if len(rows) == limit else None,
        }


def _episode(agent: str, row: Mapping[str, Any], log: StepLog) -> dict[str, Any]:
    actions = explored(orjson.loads(log.steps or "[]"))
    at = row["ended_at"].isoformat()
    return {
        "trajectory_id": row["trajectory_id"],
        "policy_revision": row["policy_revision"],
        "sha256": digest(actions),
        "actions": list(_actions(agent, at, actions)),
    }


def _actions(agent: str, at: str, found: Sequence[tuple[int, str, float, float | None]]) -> Iterator[dict[str, Any]]:
    for place, hashed, reward, value in found:
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
