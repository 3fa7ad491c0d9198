"""Scores of evaluators (LLM judges, code, reward models): on request, or waited for and kept with stored episodes."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

import orjson
from pydantic import Field

from learnloop_api.kinds.reward_policy import Normalisation, RewardComponent, RewardPolicySpec
from learnloop_api.wire.trajectory import MAX_STEPS, Step, TaskResult
from learnloop_common.reward_rules.components import Episode, evaluate
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.evaluators.all_evaluators import score, score_or_say
from learnloop_dataplane.evaluators.evaluator import Case, Score, Tools
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards import reward_tables, reward_worker, team_credit

SECONDS = 20.0
"""That all evaluators of one request may take together."""


class Result(TaskResult):
    """How a task went. `steps` are the steps themselves, or only how many there were."""

    task: str = Field(default="", max_length=1024, description="what was asked")
    episode_return: float = 0.0
    success: bool | None = None
    steps: Annotated[int, Field(ge=0, le=10_000_000)] | Annotated[list[Step], Field(max_length=MAX_STEPS)] = 1
    seconds: float | None = Field(default=None, ge=0)
    values: dict[str, float] = Field(default_factory=dict, max_length=64)

    @property
    def count(self) -> int:
        return self.steps if isinstance(self.steps, int) else len(self.steps)

    @property
    def log(self) -> Sequence[Mapping[str, Any]]:
        return [] if isinstance(self.steps, int) else [step.model_dump() for step in self.steps]


async def calculated(
    tools: Tools,
    result: Result,
    policy: reward_tables.Policy | None,
    running: reward_tables.Running,
    *,
    agent: str = "",
    task_id: str | None = None,
) -> dict[str, Any]:
    """A reward, as JSON has it, that is not stored. Without a policy: the default components, not normalised.

    Raises:
        ValueError: a measurement is not a finite number.
    """
    spec = policy.spec if policy else RewardPolicySpec(normalisation=Normalisation(method="none"))
    scores = await _scores(tools, spec, result)
    measured = {name: score.value for name, score in scores.items() if score.value is not None}
    episode = Episode(result.episode_return, result.success, result.count, result.values, result.log, scores=measured)
    worth = evaluate(spec, episode)
    reward, running = reward_tables.settle(spec, worth, running)
    parts = team_credit.stored_division(spec, running, reward, result).described() if result.agents else []
    own = next((part["credit_assigned"] for part in parts if part["agent"] == agent), None)
    return {
        "task_id": task_id,
        "reward_policy": policy.name if policy else None,
        "reward_policy_revision": policy.revision if policy else None,
        "components": worth.components,
        "evaluations": {name: {"value": score.value, "note": score.note} for name, score in scores.items()},
        "raw_reward": worth.raw,
        "reward": reward,
        "shaped_reward": reward,
        "credit_assigned": own if parts else reward,
        "credits": parts,
        "confidence": reward_tables.confidence(spec, worth, running),
        "violated": worth.broken,
        **reward_tables.policy_terms(spec),
    }


async def _scores(tools: Tools, spec: RewardPolicySpec, result: Result) -> dict[str, Score]:
    evaluators = {item.name: item.evaluator for item in spec.components if item.evaluator is not None}
    if not evaluators:
        return {}
    case = Case(result.task, result.task_type, result.output, result.expected)
    tasks = {name: asyncio.create_task(score_or_say(how, case, tools)) for name, how in evaluators.items()}
    try:
        await asyncio.wait(tasks.values(), timeout=SECONDS)
        late = Score(None, f"no answer within {SECONDS:g} s")
        return {name: task.result() if task.done() else late for name, task in tasks.items()}
    finally:
        for task in tasks.values():
            task.cancel()


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
        tools: of evaluators, for a namespace.
        arrived: called with a namespace in which episodes are ready for their rewards.
    """

    def __init__(
        self,
        db: Database,
        policies: reward_tables.Policies,
        tools: Callable[[str], Tools],
        arrived: Callable[[str], None],
    ) -> None:
        self._db = db
        self._policies = policies
        self._tools = tools
        self._arrived = arrived

    async def run(self, namespace: str) -> int:
        """Scores what is pending in one namespace and returns how many scores were kept."""
        count, until = 0, time.monotonic() + TURN_SECONDS
        for whose in await reward_worker.waiting(self._db, namespace):
            policy = await self._policies.get(namespace, whose.policy, whose.revision)
            components = [item for item in policy.spec.components if item.evaluator] if policy else []
            if policy and components:
                count += await self._score_agent(namespace, whose, policy, components, until)
        if count:
            self._arrived(namespace)
        return count

    async def _score_agent(
        self,
        namespace: str,
        whose: reward_worker.Weigher,
        policy: reward_tables.Policy,
        components: list[RewardComponent],
        until: float,
    ) -> int:
        count, after = 0, (datetime.min.replace(tzinfo=UTC), 0)
        tools, places = self._tools(namespace), asyncio.Semaphore(AT_ONCE)
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
        policy: reward_tables.Policy,
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
