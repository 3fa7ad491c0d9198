"""Has the outputs of stored episodes scored, before they get their rewards.

A score is kept once and never asked again. An evaluator that does not answer holds the reward back for GIVE_UP_SECONDS
at most; then its measurement is missing, and the reward's confidence is lower.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from learnloop_api.kinds.reward_policy import RewardComponent
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.evaluators.evaluator import Case, Sandbox, Score, Tools
from learnloop_dataplane.evaluators.registry import score
from learnloop_dataplane.evaluators.scorers import Scorers
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.policies import Policies
from learnloop_dataplane.rewards.reward_tables import Policy
from learnloop_dataplane.rewards.reward_worker import Weigher, waiting

if TYPE_CHECKING:
    from learnloop_dataplane.evaluators.judge_client import JudgeClient

log = logging.getLogger(__name__)
PAGE = 50
MOST_PAGES = 20
"""Of one agent in one pass; what is left waits for the next."""
AT_ONCE = 4
TURN_SECONDS = 20.0
"""For one namespace: no score is begun later. What is left waits until all others had their turn."""
GIVE_UP_SECONDS = 900.0
_UNSCORED = """
SELECT t.trajectory_id, t.seq, t.received_at, t.task, r.result,
    extract(epoch FROM now() - t.received_at)::float8 AS age,
    ARRAY(SELECT c.component FROM task_scores c WHERE c.namespace = t.namespace
        AND c.trajectory_id = t.trajectory_id AND c.reward_policy = $3 AND c.reward_policy_revision = $4) AS done
FROM trajectories t
LEFT JOIN task_results r ON r.namespace = t.namespace AND r.trajectory_id = t.trajectory_id
JOIN agents a ON a.namespace = t.namespace AND a.name = t.agent_id
WHERE t.namespace = $1 AND t.agent_id = $2 AND t.reward IS NULL AND t.received_at >= a.since
    AND (t.received_at, t.seq) > ($5, $6)
    AND (SELECT count(*) FROM task_scores c WHERE c.namespace = t.namespace
        AND c.trajectory_id = t.trajectory_id AND c.reward_policy = $3 AND c.reward_policy_revision = $4) < $7
ORDER BY t.received_at, t.seq LIMIT $8
"""
# An episode may have been erased while it was scored: then there is nothing to keep.
_KEEP = """
INSERT INTO task_scores (namespace, trajectory_id, reward_policy, reward_policy_revision, component, value, note)
SELECT $1, t.trajectory_id, $3, $4, $5, $6, $7 FROM trajectories t WHERE t.namespace = $1 AND t.trajectory_id = $2
ON CONFLICT DO NOTHING
"""


class EvaluationWorker:
    """Scores what waits. Where replicas score the same episode, the first score stays.

    Args:
        judge: compares answers; None: there is none.
        arrived: called with a namespace in which episodes are ready for their rewards.
        sandbox: runs code; None: there is none.
        scorers: reward models; None: none is asked.
    """

    def __init__(
        self,
        db: Database,
        policies: Policies,
        judge: "JudgeClient | None",
        arrived: Callable[[str], None],
        sandbox: Sandbox | None = None,
        scorers: Scorers | None = None,
    ) -> None:
        self._db = db
        self._policies = policies
        self._judge = judge
        self._sandbox = sandbox
        self._scorers = scorers
        self._arrived = arrived

    async def run(self, namespace: str) -> int:
        """Scores what is pending in one namespace and returns how many scores were kept.

        Raises:
            Unavailable: PostgreSQL does not answer; the rest stays pending.
        """
        count, until = 0, time.monotonic() + TURN_SECONDS
        for whose in await waiting(self._db, namespace):
            policy = await self._policies.get(namespace, whose.policy, whose.revision)
            components = [item for item in policy.spec.components if item.evaluator] if policy else []
            if policy and components:
                count += await self._score_agent(namespace, whose, policy, components, until)
        if count:
            self._arrived(namespace)
        return count

    async def _score_agent(
        self, namespace: str, whose: Weigher, policy: Policy, components: list[RewardComponent], until: float
    ) -> int:
        count, after = 0, (datetime.min.replace(tzinfo=UTC), 0)
        scorer = partial(self._scorers.score, namespace) if self._scorers else None
        tools = Tools(self._judge, self._sandbox, scorer, namespace)
        places = asyncio.Semaphore(AT_ONCE)
        for _ in range(MOST_PAGES):
            key = (whose.agent, policy.name, policy.revision, *after, len(components), PAGE)
            async with self._db.tenant(namespace) as connection:
                rows = await connection.fetch(_UNSCORED, namespace, *key)
            if not rows:
                break
            after = rows[-1]["received_at"], rows[-1]["seq"]
            done = await asyncio.gather(
                *(
                    self._score(namespace, policy, item, row, tools, places, until)
                    for row in rows
                    for item in components
                )
            )
            count += sum(done)
            if len(rows) < PAGE or time.monotonic() >= until:
                break
        return count

    async def _score(
        self,
        namespace: str,
        policy: Policy,
        component: RewardComponent,
        row: Any,
        tools: Tools,
        places: asyncio.Semaphore,
        until: float,
    ) -> bool:
        if component.evaluator is None or component.name in row["done"]:
            return False
        async with places:
            if time.monotonic() >= until:
                return False
            try:
                result = await score(component.evaluator, case_of(row), tools)
            except Unavailable as error:
                result = Score(None, error.message, pending=True)
        if result.pending and row["age"] < GIVE_UP_SECONDS:
            return False
        if result.pending:
            result = replace(result, value=None, note=f"given up after {GIVE_UP_SECONDS:g} s: {result.note}")
            log.info("%s of %s/%s: %s", component.name, namespace, row["trajectory_id"], result.note)
        key = (row["trajectory_id"], policy.name, policy.revision, component.name)
        async with self._db.tenant(namespace) as connection:
            await connection.execute(_KEEP, namespace, *key, result.value, result.note[:1000])
        return True


def case_of(row: Any) -> Case:
    """The task in a row of `trajectories` that was selected together with its `result`."""
    result = orjson.loads(row["result"]) if row["result"] else {}
    return Case(row["task"], result.get("task_type", ""), result.get("output"), result.get("expected"))
