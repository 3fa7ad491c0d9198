"""What came of a recall: teaches the agent's ranker and the recalled memories' utility, once for each recall."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

import numpy as np
import orjson

from learnloop_memory.audit.journal import note
from learnloop_memory.errors import ApiError
from learnloop_memory.life.slices import Busy, hold
from learnloop_memory.memory.log import RecallLog
from learnloop_memory.memory.ranker import PROOF, Ranker, Shown, credits, learn_from_labels, learn_from_reward, utility
from learnloop_memory.memory.signals import SIGNALS
from learnloop_memory.store.database import Database

BATCH = 100
PATIENCE_SECONDS = 60  # a recall that another replica logged a moment ago may not be written yet

_RECALL = """
SELECT agent_id, ranker, shown, memory_ids, features, propensities, settled_at FROM recall_log
WHERE namespace = $1 AND retrieval_id = $2 FOR UPDATE
"""
_SETTLE = "UPDATE recall_log SET settled_at = now(), reward = $3 WHERE namespace = $1 AND retrieval_id = $2"
_OPEN = "INSERT INTO memory_rankers (namespace, agent_id, state) VALUES ($1, $2, '{}') ON CONFLICT DO NOTHING"
_READ = "SELECT state FROM memory_rankers WHERE namespace = $1 AND agent_id = $2 FOR UPDATE"
_STATE = "SELECT state FROM memory_rankers WHERE namespace = $1 AND agent_id = $2"
_SAVE = """
UPDATE memory_rankers SET state = $3, active = $4, updated_at = now() WHERE namespace = $1 AND agent_id = $2
"""
_CREDIT = """
INSERT INTO memory_use (namespace, memory_id, helped, hurt)
SELECT $1, u.id, u.helped, u.hurt FROM unnest($2::uuid[], $3::float8[], $4::float8[]) AS u(id, helped, hurt)
ORDER BY u.id
ON CONFLICT (namespace, memory_id) DO UPDATE
SET helped = memory_use.helped + excluded.helped, hurt = memory_use.hurt + excluded.hurt
RETURNING memory_id, helped, hurt
"""
_UTILITY = """
UPDATE memory_vec SET utility = u.utility FROM unnest($3::uuid[], $4::real[]) AS u(id, utility)
WHERE namespace = $1 AND agent_id = $2 AND memory_id = u.id
"""
_REWARDED = """
SELECT trajectory_id, retrieval_ids, reward, received_at < now() - make_interval(secs => $3) AS old FROM trajectories
WHERE namespace = $1 AND NOT credited AND reward IS NOT NULL AND retrieval_ids <> '[]'::jsonb
ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
"""
_CREDITED = "UPDATE trajectories SET credited = true WHERE namespace = $1 AND trajectory_id = ANY($2::text[])"


class Feedback:
    """Applies feedback that someone sends, and the rewards of the episodes that recalled."""

    def __init__(self, db: Database, log: RecallLog) -> None:
        self._db = db
        self._log = log

    async def give(
        self, namespace: str, retrieval_id: UUID, *, reward: float | None, helpful: Sequence[UUID] | None
    ) -> dict[str, Any]:
        """One recall's outcome: what the ranker thinks now, and whether this recall had taught it before.

        Raises:
            ApiError: 404, there is no such recall; 422, a memory in `helpful` was not among its candidates.
            Unavailable, Busy: nothing was learned.
        """
        await self._log.flush()
        async with self._db.tenant(namespace) as connection:
            found = await _apply(connection, namespace, retrieval_id, reward, helpful)
            if found is not None and not found["duplicate"]:
                await note(
                    connection, namespace, "recall.feedback", f"recall/{retrieval_id}", {"agent": found["agent_id"]}
                )
        if found is None:
            raise ApiError(
                404,
                "no recall is logged under this id; send the retrieval_id of an answer within its retention",
                field="retrieval_id",
                value=retrieval_id,
            )
        return found

    async def ranker(self, namespace: str, agent: str) -> dict[str, Any]:
        """What this agent's ranker has learned; the static weights where it never got feedback.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        async with self._db.tenant(namespace) as connection:
            state = await connection.fetchval(_STATE, namespace, agent)
        ranker = Ranker.from_state(orjson.loads(state) if state else None)
        return _described(agent, ranker) | {"evidence": round(ranker.evidence, 4), "needed": round(PROOF, 4)}

    async def run(self, namespace: str) -> int:
        """Gives each rewarded episode's reward to its recalls; returns how many episodes that were.

        Raises:
            Unavailable: the rest stays for the next time.
        """
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_REWARDED, namespace, BATCH, PATIENCE_SECONDS)
            done = []
            for row in rows:
                ids = [identity for text in orjson.loads(row["retrieval_ids"]) if (identity := _uuid(text))]
                try:
                    taught = [await _apply(connection, namespace, identity, row["reward"], None) for identity in ids]
                except Busy:
                    continue
                if None not in taught or row["old"]:
                    done.append(row["trajectory_id"])
            if done:
                await connection.execute(_CREDITED, namespace, done)
        return len(done)


async def _apply(
    connection: Any, namespace: str, retrieval_id: UUID, reward: float | None, helpful: Sequence[UUID] | None
) -> dict[str, Any] | None:
    row = await connection.fetchrow(_RECALL, namespace, retrieval_id)
    if row is None:
        return None
    agent = row["agent_id"]
    await hold(connection, namespace, agent)
    await connection.execute(_OPEN, namespace, agent)
    ranker = Ranker.from_state(orjson.loads(await connection.fetchval(_READ, namespace, agent)))
    if row["settled_at"] is None:
        ids = list(row["memory_ids"])
        features = np.frombuffer(row["features"], "<f4").astype(np.float64).reshape(len(ids), len(SIGNALS))
        shown = Shown(features, row["shown"], np.array(row["propensities"], dtype=np.float64))
        if helpful is not None:
            ranker = learn_from_labels(ranker, shown, [_place(ids, memory) for memory in helpful])
            gains = [1.0 if memory in set(helpful) else -0.25 for memory in ids[: shown.k]]
        else:
            ranker, advantage = learn_from_reward(ranker, shown, reward or 0.0)
            gains = credits(shown.k, advantage)
        await connection.execute(_SAVE, namespace, agent, orjson.dumps(asdict(ranker)).decode(), ranker.active)
        await _credit(connection, namespace, agent, ids[: shown.k], gains)
        await connection.execute(_SETTLE, namespace, retrieval_id, reward)
    return _described(agent, ranker) | {"duplicate": row["settled_at"] is not None}


def _described(agent: str, ranker: Ranker) -> dict[str, Any]:
    return {
        "agent_id": agent,
        "ranker": "learned" if ranker.active else "static",
        "feedbacks": ranker.feedbacks,
        "weights": dict(zip(SIGNALS, (round(weight, 6) for weight in ranker.weights), strict=True)),
    }


async def _credit(connection: Any, namespace: str, agent: str, ids: list[UUID], gains: list[float]) -> None:
    helped, hurt = [max(gain, 0.0) for gain in gains], [max(-gain, 0.0) for gain in gains]
    rows = await connection.fetch(_CREDIT, namespace, ids, helped, hurt)
    values = [utility(row["helped"], row["hurt"]) for row in rows]
    await connection.execute(_UTILITY, namespace, agent, [row["memory_id"] for row in rows], values)


def _place(ids: list[UUID], memory: UUID) -> int:
    try:
        return ids.index(memory)
    except ValueError:
        raise ApiError(
            422,
            "this memory was not among the recall's candidates; name memories it answered",
            field="helpful",
            value=memory,
        ) from None


def _uuid(text: str) -> UUID | None:
    """None for an id that no recall of this service can have."""
    try:
        return UUID(text)
    except ValueError:
        return None
