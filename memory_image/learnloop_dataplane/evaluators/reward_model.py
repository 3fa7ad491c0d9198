"""`reward-model`: what a reward model, trained from people's preferences, makes of the output."""

from typing import ClassVar

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, as_text
from learnloop_dataplane.evaluators.scorers import NoScore


class Preferred(EvaluatorType):
    """The episode's task is the question, its output the answer."""

    name: ClassVar[str] = "reward-model"

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """Probability that people prefer the output to a middling answer of those that the model learned from."""
        if tools.scorer is None or spec.reward_model is None:
            return Score(None, "reward models are not scored here")
        if not case.task:
            return Score(None, "the episode has no task: a reward model reads it as the question")
        sha256 = spec.reward_model.sha256
        try:
            value = await tools.scorer(sha256, case.task, as_text(case.output))
        except NoScore as error:
            return Score(None, str(error)[:500])
        return Score(value, f"reward model {sha256[:12]} gives {value:.3f}")
