"""What a result would be worth: evaluators, components, shaping, normalisation, and the parts of the agents. It keeps
nothing."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
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
from learnloop_dataplane.rewards.normalisation import Running, confidence, settle
from learnloop_dataplane.rewards.policy_terms import policy_terms
from learnloop_dataplane.rewards.reward_tables import Policy
from learnloop_dataplane.task_rewards.earlier_episodes import history_of
from learnloop_dataplane.task_rewards.team_credits import Scale, TeamCredits, described

if TYPE_CHECKING:
    from learnloop_dataplane.evaluators.judge_client import JudgeClient

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
    """Computes rewards that nobody stores."""

    def __init__(
        self,
        db: Database,
        judge: "JudgeClient | None",
        credits: TeamCredits,
        sandbox: Sandbox | None = None,
        scorers: Scorers | None = None,
    ) -> None:
        self._db = db
        self._judge = judge
        self._sandbox = sandbox
        self._credits = credits
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
        known = {name: found.value for name, found in scores.items() if found.value is not None}
        episode = Episode(result.episode_return, result.success, result.count, result.values, result.log, scores=known)
        worth = evaluate(spec, episode)
        reward, running = settle(spec, worth, running)
        division = await self._credits.among(namespace, Scale(spec, running), reward, result, task_id or "")
        parts = described(division) if division else []
        own = next((part["credit_assigned"] for part in parts if part["agent"] == agent), None)
        return {
            "task_id": task_id,
            "reward_policy": policy.name if policy else None,
            "reward_policy_revision": policy.revision if policy else None,
            "components": worth.components,
            "evaluations": {name: {"value": found.value, "note": found.note} for name, found in scores.items()},
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
        asked = {item.name: item.evaluator for item in spec.components if item.evaluator is not None}
        if not asked:
            return {}
        case = Case(
            agent=agent,
            task=result.task,
            task_type=result.task_type,
            output=result.output,
            expected=result.expected,
            metadata=result.metadata,
            success=result.success,
            steps=result.count,
            seconds=result.seconds,
            values=result.values,
        )
        scorer = partial(self._scorers.score, namespace) if self._scorers else None
        tools = Tools(history_of(self._db, namespace), self._judge, self._sandbox, scorer, namespace)
        tasks = {name: asyncio.create_task(score_or_say(how, case, tools)) for name, how in asked.items()}
        try:
            await asyncio.wait(tasks.values(), timeout=SECONDS)
            late = Score(None, f"no answer within {SECONDS:g} s")
            return {name: task.result() if task.done() else late for name, task in tasks.items()}
        finally:
            for task in tasks.values():
                task.cancel()
