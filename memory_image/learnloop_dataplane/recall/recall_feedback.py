"""What came of a recall: teaches the agent's ranker and the recalled memories' utility, once for each recall."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

import numpy as np
import orjson

from learnloop_dataplane.audit.chain import note
from learnloop_dataplane.errors import ApiError
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.sliced_transactions import Busy, hold
from learnloop_dataplane.ranking.learned_ranker import LoggedRecall, Ranker, learn_from_labels, learn_from_reward
from learnloop_dataplane.ranking.outcome_credit import credits, utility
from learnloop_dataplane.ranking.ranker_settings import SETTINGS
from learnloop_dataplane.ranking.relevance_signals import SIGNALS
from learnloop_dataplane.recall.recall_log import RecallLog

BATCH = 100
PATIENCE_SECONDS = 60  # a recall that another replica logged a moment ago may not be written yet

_RECALL = """
SELECT retrieval_id, agent_id, shown, memory_ids, features, propensities, settled_at FROM recall_log
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
_OWNERS = "SELECT id, agent_id FROM agent_memories WHERE namespace = $1 AND id = ANY($2::uuid[])"
_REWARDED = """
SELECT trajectory_id, retrieval_ids, reward, received_at < now() - make_interval(secs => $3) AS old FROM trajectories
WHERE namespace = $1 AND NOT credited AND reward IS NOT NULL AND retrieval_ids <> '[]'::jsonb
ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
"""
_CREDITED = "UPDATE trajectories SET credited = true WHERE namespace = $1 AND trajectory_id = ANY($2::text[])"
Gains = dict[UUID, tuple[float, float]]
"""How much each memory helped and hurt."""


Verdicts = list[tuple[str, int, float]]
"""An agent, how many of its recalls were judged together, and how much better than expected it went."""
Judged = Callable[[str, str, int, bool], None]


class Feedback:
    """Applies feedback that someone sends, and the rewards of the episodes that recalled.

    Args:
        judged: is told a namespace, an agent, how many of its recalls were judged, and whether they helped.
    """

    def __init__(self, db: Database, log: RecallLog, judged: Judged) -> None:
        self._db, self._log, self._judged = db, log, judged

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
            row = await connection.fetchrow(_RECALL, namespace, retrieval_id)
            verdicts: Verdicts = []
            found = None if row is None else await _applied(connection, namespace, row, reward, helpful, verdicts)
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
        self._tell(namespace, verdicts)
        return found

    async def ranker(self, namespace: str, agent: str) -> dict[str, Any]:
        """What this agent's ranker has learned; the static weights where it never got feedback.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        async with self._db.tenant(namespace) as connection:
            state = await connection.fetchval(_STATE, namespace, agent)
        ranker = Ranker.from_state(orjson.loads(state) if state else None)
        return _described(agent, ranker) | {"evidence": round(ranker.evidence, 4), "needed": round(SETTINGS.proof, 4)}

    async def run(self, namespace: str) -> int:
        """Gives each rewarded episode's reward to its recalls; returns how many episodes that were.

        The recalls of one episode teach together: their coins have one outcome. So it waits for those that are not
        logged yet.

        Raises:
            Unavailable: the rest stays for the next time.
        """
        async with self._db.tenant(namespace) as connection:
            rows = await connection.fetch(_REWARDED, namespace, BATCH, PATIENCE_SECONDS)
            done: list[str] = []
            gained: Gains = {}
            verdicts: Verdicts = []
            for row in rows:
                ids = {identity for text in orjson.loads(row["retrieval_ids"]) if (identity := _uuid(text))}
                logged = [await connection.fetchrow(_RECALL, namespace, identity) for identity in sorted(ids)]
                if None not in logged or row["old"]:
                    recalls = [recall for recall in logged if recall is not None and recall["settled_at"] is None]
                    try:
                        await _hold(connection, namespace, recalls)
                    except Busy:
                        continue
                    for agent in sorted({recall["agent_id"] for recall in recalls}):
                        own = [recall for recall in recalls if recall["agent_id"] == agent]
                        await _reward(connection, namespace, agent, own, row["reward"], gained, verdicts)
                    done.append(row["trajectory_id"])
            await _credit(connection, namespace, gained)
            if done:
                await connection.execute(_CREDITED, namespace, done)
        self._tell(namespace, verdicts)
        return len(done)

    def _tell(self, namespace: str, verdicts: Verdicts) -> None:
        for agent, recalls, advantage in verdicts:
            if advantage:
                self._judged(namespace, agent, recalls, advantage > 0)


async def _applied(
    connection: Any,
    namespace: str,
    row: Any,
    reward: float | None,
    helpful: Sequence[UUID] | None,
    verdicts: Verdicts,
) -> dict[str, Any]:
    agent = row["agent_id"]
    await _hold(connection, namespace, [row])
    if row["settled_at"] is not None:
        ranker = await _held(connection, namespace, agent)
    elif helpful is None:
        gained: Gains = {}
        ranker = await _reward(connection, namespace, agent, [row], reward or 0.0, gained, verdicts)
        await _credit(connection, namespace, gained)
    else:
        ranker = await _label(connection, namespace, row, helpful)
        verdicts.append((agent, 1, 1.0 if helpful else -1.0))
    return _described(agent, ranker) | {"duplicate": row["settled_at"] is not None}


async def _label(connection: Any, namespace: str, row: Any, helpful: Sequence[UUID]) -> Ranker:
    agent, ids = row["agent_id"], list(row["memory_ids"])
    ranker = await _held(connection, namespace, agent)
    ranker = learn_from_labels(ranker, _shown(row), [_place(ids, memory) for memory in helpful])
    gains = [1.0 if memory in set(helpful) else -0.25 for memory in ids[: row["shown"]]]
    await _save(connection, namespace, agent, ranker)
    await connection.execute(_SETTLE, namespace, row["retrieval_id"], None)
    gained: Gains = {}
    _add(gained, ids[: row["shown"]], gains)
    await _credit(connection, namespace, gained)
    return ranker


async def _reward(
    connection: Any,
    namespace: str,
    agent: str,
    rows: Sequence[Any],
    reward: float,
    gained: Gains,
    verdicts: Verdicts,
) -> Ranker:
    """One reward for all these recalls of one agent; what it says about their memories is added to `gained`, and what
    about recalling itself to `verdicts`."""
    ranker = await _held(connection, namespace, agent)
    ranker, advantage = learn_from_reward(ranker, [_shown(row) for row in rows], reward)
    verdicts.append((agent, len(rows), advantage))
    await _save(connection, namespace, agent, ranker)
    for row in rows:
        k = row["shown"]
        _add(gained, list(row["memory_ids"])[:k], credits(k, advantage))
        await connection.execute(_SETTLE, namespace, row["retrieval_id"], reward)
    return ranker


async def _held(connection: Any, namespace: str, agent: str) -> Ranker:
    """The agent's ranker, which nobody else teaches until the transaction ends."""
    await connection.execute(_OPEN, namespace, agent)
    return Ranker.from_state(orjson.loads(await connection.fetchval(_READ, namespace, agent)))


async def _save(connection: Any, namespace: str, agent: str, ranker: Ranker) -> None:
    await connection.execute(_SAVE, namespace, agent, orjson.dumps(asdict(ranker)).decode(), ranker.active)


def _shown(row: Any) -> LoggedRecall:
    n = len(row["memory_ids"])
    features = np.frombuffer(row["features"], "<f4").astype(np.float64).reshape(n, len(SIGNALS))
    return LoggedRecall(features, row["shown"], np.array(row["propensities"], dtype=np.float64))


def _described(agent: str, ranker: Ranker) -> dict[str, Any]:
    return {
        "agent_id": agent,
        "ranker": "learned" if ranker.active else "static",
        "feedbacks": ranker.feedbacks,
        "weights": dict(zip(SIGNALS, (round(weight, 6) for weight in ranker.weights), strict=True)),
    }


async def _hold(connection: Any, namespace: str, recalls: Sequence[Any]) -> None:
    """Of who recalled, and of whose memories were shown: a group's recall shows those of others.

    Raises:
        Busy: all memories of one of them are being changed.
    """
    shown = [identity for row in recalls for identity in row["memory_ids"][: row["shown"]]]
    owners = await connection.fetch(_OWNERS, namespace, shown)
    for agent in sorted({row["agent_id"] for row in (*recalls, *owners)}):
        await hold(connection, namespace, agent)


def _add(gained: Gains, ids: Sequence[UUID], gains: Sequence[float]) -> None:
    for identity, gain in zip(ids, gains, strict=True):
        helped, hurt = gained.get(identity, (0.0, 0.0))
        gained[identity] = (helped + max(gain, 0.0), hurt + max(-gain, 0.0))


async def _credit(connection: Any, namespace: str, gained: Gains) -> None:
    """All of a transaction's at once, in the order of the ids: who counts uses meanwhile never waits in a circle."""
    owners: dict[str, list[UUID]] = {}
    for row in await connection.fetch(_OWNERS, namespace, list(gained)) if gained else ():
        owners.setdefault(row["agent_id"], []).append(row["id"])
    if not owners:  # all of them are gone
        return
    there = [identity for own in owners.values() for identity in own]
    helped, hurt = [gained[identity][0] for identity in there], [gained[identity][1] for identity in there]
    judged = {row["memory_id"]: row for row in await connection.fetch(_CREDIT, namespace, there, helped, hurt)}
    for agent, own in sorted(owners.items()):
        values = [utility(judged[identity]["helped"], judged[identity]["hurt"]) for identity in own]
        await connection.execute(_UTILITY, namespace, agent, own, values)


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
