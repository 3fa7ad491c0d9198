"""Outcomes of recalls: each one moves the recalled memories' own, once for each recall.

A memory's outcome is a decayed mean from -1 to 1. It multiplies the memory's score by 0.8 to 1.25 (`ranking.OUTCOME`):
enough to put the more useful of two memories that fit first, too little to bring up one that does not fit.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import orjson

from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.recall.recall import RecallLog

BATCH = 100
PATIENCE_SECONDS = 60  # a recall that another replica logged a moment ago may not be written yet
DECAY = 0.95  # of what earlier outcomes said, at each new one
NEUTRAL = 2.0  # neutral outcomes that every memory begins with: one lucky recall does not decide
RATE = 0.05  # of a reward in the usual reward and its spread
UNHELPFUL = -0.25  # of a shown memory that was not among the helpful ones

OUTCOME = f"((u.helped - u.hurt) / (u.helped + u.hurt + {NEUTRAL}))::real"
"""In SQL, of a row `u` of `memory_use`."""
_RECALL = """
SELECT retrieval_id, agent_id, memory_ids, settled_at FROM recall_log
WHERE namespace = $1 AND retrieval_id = $2 FOR UPDATE
"""
_SETTLE = "UPDATE recall_log SET settled_at = now(), reward = $3 WHERE namespace = $1 AND retrieval_id = $2"
_OPEN = "INSERT INTO recall_rewards (namespace, agent_id) VALUES ($1, $2) ON CONFLICT DO NOTHING"
_USUAL = "SELECT mean, spread, judged FROM recall_rewards WHERE namespace = $1 AND agent_id = $2 FOR UPDATE"
_LEARNED = "UPDATE recall_rewards SET mean = $3, spread = $4, judged = $5 WHERE namespace = $1 AND agent_id = $2"
_THERE = "SELECT id FROM agent_memories WHERE namespace = $1 AND id = ANY($2::uuid[])"
# In the order of the ids: counting uses meanwhile never waits in a circle.
_CREDIT = f"""
INSERT INTO memory_use (namespace, memory_id, helped, hurt)
SELECT $1, t.id, t.helped, t.hurt FROM unnest($2::uuid[], $3::float8[], $4::float8[]) AS t(id, helped, hurt)
ORDER BY t.id
ON CONFLICT (namespace, memory_id) DO UPDATE
SET helped = {DECAY} * memory_use.helped + excluded.helped, hurt = {DECAY} * memory_use.hurt + excluded.hurt
"""
_FOLLOW = f"""
UPDATE memory_index v SET outcome = {OUTCOME} FROM agent_memories m, memory_use u
WHERE m.namespace = $1 AND m.id = ANY($2::uuid[]) AND u.namespace = $1 AND u.memory_id = m.id
    AND v.namespace = $1 AND v.agent_id = m.agent_id AND v.memory_id = m.id
"""
_REWARDED = """
SELECT trajectory_id, retrieval_ids, reward, received_at < now() - make_interval(secs => $3) AS old FROM trajectories
WHERE namespace = $1 AND NOT credited AND reward IS NOT NULL AND retrieval_ids <> '[]'::jsonb
ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
"""
_CREDITED = "UPDATE trajectories SET credited = true WHERE namespace = $1 AND trajectory_id = ANY($2::text[])"
Gains = dict[UUID, tuple[float, float]]
"""How much each memory helped and hurt."""
Verdicts = list[tuple[str, int, float]]
"""An agent, how many of its recalls were judged together, and how much better than usual it went."""


class Outcomes:
    """Applies feedback that a client sends, and the rewards of episodes that recalled.

    Args:
        judged: called with a namespace, an agent, how many of its recalls were judged, and whether they helped.
    """

    def __init__(self, db: Database, log: RecallLog, judged: Callable[[str, str, int, bool], None]) -> None:
        self._db, self._log, self._judged = db, log, judged

    async def give(
        self, namespace: str, retrieval_id: UUID, *, reward: float | None, helpful: Sequence[UUID] | None
    ) -> dict[str, Any]:
        """One recall's outcome: whose it was, and whether its outcome was known before.

        Raises:
            ApiError: 404, the recall does not exist; 422, a memory in `helpful` was not in its answer.
            Unavailable: nothing was learned.
        """
        await self._log.flush()
        verdicts: Verdicts = []
        async with self._db.tenant(namespace) as connection:
            row = await connection.fetchrow(_RECALL, namespace, retrieval_id)
            if row is None:
                raise ApiError(
                    404,
                    "no recall is logged under this id; send the retrieval_id of an answer within its retention",
                    field="retrieval_id",
                    value=retrieval_id,
                )
            duplicate = row["settled_at"] is not None
            if not duplicate:
                gained: Gains = {}
                if helpful is None:
                    await _reward(connection, namespace, row["agent_id"], [row], reward or 0.0, gained, verdicts)
                else:
                    await _label(connection, namespace, row, helpful, gained, verdicts)
                await _credit(connection, namespace, gained)
                detail = {"agent": row["agent_id"]}
                await note(connection, namespace, "recall.feedback", f"recall/{retrieval_id}", detail)
        self._count(namespace, verdicts)
        return {"agent_id": row["agent_id"], "duplicate": duplicate}

    async def run(self, namespace: str) -> int:
        """Gives each rewarded episode's reward to its recalls; returns how many episodes that were.

        The recalls of one episode teach together, so it waits for those that are not logged yet.
        """
        done: list[str] = []
        gained: Gains = {}
        verdicts: Verdicts = []
        async with self._db.tenant(namespace) as connection:
            for row in await connection.fetch(_REWARDED, namespace, BATCH, PATIENCE_SECONDS):
                ids = {identity for text in orjson.loads(row["retrieval_ids"]) if (identity := _uuid(text))}
                logged = [await connection.fetchrow(_RECALL, namespace, identity) for identity in sorted(ids)]
                if None in logged and not row["old"]:
                    continue
                recalls = [recall for recall in logged if recall is not None and recall["settled_at"] is None]
                for agent in sorted({recall["agent_id"] for recall in recalls}):
                    own = [recall for recall in recalls if recall["agent_id"] == agent]
                    await _reward(connection, namespace, agent, own, row["reward"], gained, verdicts)
                done.append(row["trajectory_id"])
            await _credit(connection, namespace, gained)
            if done:
                await connection.execute(_CREDITED, namespace, done)
        self._count(namespace, verdicts)
        return len(done)

    def _count(self, namespace: str, verdicts: Verdicts) -> None:
        for agent, recalls, advantage in verdicts:
            if advantage:
                self._judged(namespace, agent, recalls, advantage > 0)


def usual_after(mean: float, spread: float, judged: int, reward: float) -> tuple[float, float, float]:
    """How much better than usual a reward is, from -1 to 1, and the usual mean and spread after it."""
    if not judged:
        return 0.0, reward, 0.0
    distance = reward - mean
    rate = max(RATE, 1 / (judged + 1))
    after = spread + rate * (abs(distance) - spread)
    advantage = max(-1.0, min(1.0, distance / after)) if after > 1e-6 * max(abs(mean), 1.0) else 0.0
    return advantage, mean + rate * distance, after


def credits(k: int, advantage: float) -> list[float]:
    """Each shown memory's part of an advantage: by rank, because the first is read first; they sum to it."""
    weights = [1.0 / math.log2(place + 2) for place in range(k)]
    return [advantage * weight / sum(weights) for weight in weights]


async def _reward(
    connection: Any,
    namespace: str,
    agent: str,
    rows: Sequence[Any],
    reward: float,
    gained: Gains,
    verdicts: Verdicts,
) -> None:
    """One reward for all these recalls of an agent."""
    await connection.execute(_OPEN, namespace, agent)
    usual = await connection.fetchrow(_USUAL, namespace, agent)
    advantage, mean, spread = usual_after(usual["mean"], usual["spread"], usual["judged"], reward)
    await connection.execute(_LEARNED, namespace, agent, mean, spread, usual["judged"] + 1)
    verdicts.append((agent, len(rows), advantage))
    for row in rows:
        ids = list(row["memory_ids"])
        _add(gained, ids, credits(len(ids), advantage))
        await connection.execute(_SETTLE, namespace, row["retrieval_id"], reward)


async def _label(
    connection: Any, namespace: str, row: Any, helpful: Sequence[UUID], gained: Gains, verdicts: Verdicts
) -> None:
    ids = list(row["memory_ids"])
    for memory in helpful:
        if memory not in ids:
            raise ApiError(
                422, "this memory was not in the recall's answer; name memories of it", field="helpful", value=memory
            )
    _add(gained, ids, [1.0 if memory in helpful else UNHELPFUL for memory in ids])
    verdicts.append((row["agent_id"], 1, 1.0 if helpful else -1.0))
    await connection.execute(_SETTLE, namespace, row["retrieval_id"], None)


def _add(gained: Gains, ids: Sequence[UUID], gains: Sequence[float]) -> None:
    for identity, gain in zip(ids, gains, strict=True):
        helped, hurt = gained.get(identity, (0.0, 0.0))
        gained[identity] = (helped + max(gain, 0.0), hurt + max(-gain, 0.0))


async def _credit(connection: Any, namespace: str, gained: Gains) -> None:
    rows = await connection.fetch(_THERE, namespace, list(gained)) if gained else []
    there = [row["id"] for row in rows if gained[row["id"]] != (0.0, 0.0)]
    if there:
        helped, hurt = [gained[identity][0] for identity in there], [gained[identity][1] for identity in there]
        await connection.execute(_CREDIT, namespace, there, helped, hurt)
        await connection.execute(_FOLLOW, namespace, there)


def _uuid(text: str) -> UUID | None:
    """None for an id that no recall of this service can have."""
    try:
        return UUID(text)
    except ValueError:
        return None
