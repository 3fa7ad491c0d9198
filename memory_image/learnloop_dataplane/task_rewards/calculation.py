"""The reward of a task: evaluators, agreement with people, and earlier episodes of the agent."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from learnloop_api.kinds.reward_components import Normalisation
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.trajectory import MAX_STEPS, Step, TaskResult
from learnloop_common.reward_rules.components import Episode, evaluate
from learnloop_dataplane.evaluators.evaluator import Case, Sandbox, Score, Tools
from learnloop_dataplane.evaluators.registry import score_or_say
from learnloop_dataplane.evaluators.scorers import Scorers
from learnloop_dataplane.postgres.database import Database
from learnloop_dataplane.rewards.reward_tables import Policy, Running, confidence, policy_terms, settle
from learnloop_dataplane.task_rewards.team_credits import stored_division

if TYPE_CHECKING:
    from learnloop_dataplane.evaluators.judge_client import JudgeClient


def agreement(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Of scores (0 to 1) and opinions (-1 to 1) about the same episodes, the share where both are good or both bad.

    A score of 0.5 and an opinion of 0 are neither.
    """
    same = [(score > 0.5) == (opinion > 0.0) for score, opinion in pairs if score != 0.5 and opinion != 0.0]
    return {"episodes": len(same), "share": fmean(same) if same else None}


NEWEST = 5000
"""Scores of a revision that are looked at: of all its components together."""
_SCORES = """
SELECT c.component, c.value, (SELECT avg(u.value) FROM user_feedback u
    WHERE u.namespace = $1 AND u.trajectory_id = c.trajectory_id) AS opinion
FROM (SELECT component, value, trajectory_id FROM task_scores
    WHERE namespace = $1 AND reward_policy = $2 AND reward_policy_revision = $3
    ORDER BY scored_at DESC LIMIT $4) c
"""


async def evaluations(
    db: Database, namespace: str, name: str, revision: str, spec: RewardPolicySpec
) -> list[dict[str, Any]]:
    """For each component with an evaluator: how many outputs it was asked about and could score, their mean, and its
    agreement with people; over the revision's newest scores."""
    async with db.tenant(namespace) as connection:
        rows = await connection.fetch(_SCORES, namespace, name, revision, NEWEST)
    by_component: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        by_component[row["component"]].append(row)
    answers = []
    for component in spec.components:
        if component.evaluator is None:
            continue
        own_rows = by_component[component.name]
        values = [row["value"] for row in own_rows if row["value"] is not None]
        rated = [(row["value"], row["opinion"]) for row in own_rows if None not in (row["value"], row["opinion"])]
        answers.append(
            {
                "component": component.name,
                "evaluator": component.evaluator.type,
                "asked": len(own_rows),
                "scored": len(values),
                "mean": fmean(values) if values else None,
                "agreement_with_people": agreement(rated),
            }
        )
    return answers


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
        """How many steps there were."""
        return self.steps if isinstance(self.steps, int) else len(self.steps)

    @property
    def log(self) -> Sequence[Mapping[str, Any]]:
        """The steps, where they were sent."""
        return [] if isinstance(self.steps, int) else [step.model_dump() for step in self.steps]


class Calculator:
    """Computes rewards without storing them."""

    def __init__(
        self,
        db: Database,
        judge: "JudgeClient | None",
        sandbox: Sandbox | None = None,
        scorers: Scorers | None = None,
    ) -> None:
        self._db = db
        self._judge = judge
        self._sandbox = sandbox
        self._scorers = scorers

    async def calculate(
        self,
        namespace: str,
        result: Result,
        policy: Policy | None,
        running: Running,
        *,
        agent: str = "",
        task_id: str | None = None,
    ) -> dict[str, Any]:
        """The answer, as JSON has it. Without a policy: the default components, not normalised.

        Raises:
            Invalid: a measurement is not a finite number.
            Unavailable: PostgreSQL does not answer.
        """
        spec = policy.spec if policy else RewardPolicySpec(normalisation=Normalisation(method="none"))
        scores = await self._scores(namespace, spec, result, agent)
        measured = {name: score.value for name, score in scores.items() if score.value is not None}
        episode = Episode(
            result.episode_return, result.success, result.count, result.values, result.log, scores=measured
        )
        worth = evaluate(spec, episode)
        reward, running = settle(spec, worth, running)
        parts = stored_division(spec, running, reward, result).described() if result.agents else []
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
            "confidence": confidence(spec, worth, running),
            "violated": worth.broken,
            **policy_terms(spec),
        }

    async def _scores(self, namespace: str, spec: RewardPolicySpec, result: Result, agent: str) -> dict[str, Score]:
        evaluators = {item.name: item.evaluator for item in spec.components if item.evaluator is not None}
        if not evaluators:
            return {}
        case = Case(result.task, result.task_type, result.output, result.expected)
        scorer = partial(self._scorers.score, namespace) if self._scorers else None
        tools = Tools(self._judge, self._sandbox, scorer, namespace)
        tasks = {name: asyncio.create_task(score_or_say(how, case, tools)) for name, how in evaluators.items()}
        try:
            await asyncio.wait(tasks.values(), timeout=SECONDS)
            late = Score(None, f"no answer within {SECONDS:g} s")
            return {name: task.result() if task.done() else late for name, task in tasks.items()}
        finally:
            for task in tasks.values():
                task.cancel()
