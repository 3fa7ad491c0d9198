"""Reads recorded episodes with what a reward is computed from: measurements, steps, and evaluators' scores."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from learnloop_common.reward_rules.components import Episode
from learnloop_dataplane.encryption.step_cipher import StepCipher
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.postgres.schema_facts import STEPS_OF

PAGE = 1000
# Steps are most of what a trajectory weighs: they are read only for policies that look at them.
LOG = f"(SELECT s.steps FROM training_transitions s WHERE {STEPS_OF})"
NO_LOG = "NULL::jsonb"
# The scores of evaluators under one revision.
SCORES = """(SELECT jsonb_object_agg(c.component, c.value) FILTER (WHERE c.value IS NOT NULL) FROM task_scores c
    WHERE c.namespace = t.namespace AND c.trajectory_id = t.trajectory_id AND c.reward_policy = {policy}
        AND c.reward_policy_revision = {revision})"""
# The newest come first, so that a limit keeps the episodes most like those that the policy will meet. Scores are those
# of the revision that rewarded the episode: a component of the same name asks its evaluator the same.
_PAGE = """
SELECT t.trajectory_id, t.received_at, t.agent_id, t.task, t.episode_return, t.success, t.steps, t.outcome_values,
    t.labels, r.task_type, r.result -> 'metadata' AS result_metadata, {log} AS log, {scores} AS scores
FROM trajectories t LEFT JOIN task_results r ON r.namespace = $1 AND r.trajectory_id = t.trajectory_id
WHERE t.namespace = $1 AND ($2::text[] IS NULL OR t.agent_id = ANY($2))
    AND t.received_at >= $3 AND (t.received_at, t.trajectory_id) < ($4, $5)
ORDER BY t.received_at DESC, t.trajectory_id DESC LIMIT $6
"""
_SCORES = SCORES.format(policy="c.reward_policy", revision="t.reward_policy_revision")


@dataclass(frozen=True)
class Window:
    """The newest `limit` episodes received in [since, until), of these agents (None: of all)."""

    limit: int
    agents: Sequence[str] | None = None
    since: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    until: datetime | None = None


async def pages(
    db: Database, cipher: StepCipher, namespace: str, window: Window, *, steps: bool
) -> AsyncIterator[Sequence[Any]]:
    """Yields the episodes of a window page by page, with their steps where `steps` asks for them."""
    statement = _PAGE.format(log=LOG if steps else NO_LOG, scores=_SCORES)
    agents = list(window.agents) if window.agents is not None else None
    position, left = (window.until or datetime.now(UTC), ""), window.limit
    while left:
        size = min(PAGE, left)
        async with db.tenant(namespace) as connection:
            rows = await connection.fetch(statement, namespace, agents, window.since, *position, size)
        yield await cipher.open_rows(db, namespace, rows)
        if len(rows) < size:
            return
        left -= size
        position = rows[-1]["received_at"], rows[-1]["trajectory_id"]


def read_episode(row: Any) -> Episode:
    """The episode in a row of `trajectories` that was selected together with its `log`."""
    values, steps = orjson.loads(row["outcome_values"]), orjson.loads(row["log"]) if row["log"] else ()
    scores = orjson.loads(row["scores"]) if row.get("scores") else {}
    return Episode(row["episode_return"], row["success"], row["steps"], values, steps, scores=scores)
