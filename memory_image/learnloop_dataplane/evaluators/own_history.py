"""`own-history`: efficiency against the agent's own earlier episodes of the same task type."""

from typing import ClassVar

from learnloop_api.kinds.evaluators import Evaluator, OwnHistory
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools

FEWEST = 10
"""Earlier successful episodes; fewer say nothing."""


class OwnHistoryShare(EvaluatorType):
    """Share of the earlier successes that needed more, ties half. A failure is no efficiency: it has 0."""

    name: ClassVar[str] = "own-history"
    needs_output: ClassVar[bool] = False

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """The share; without enough history it cannot tell."""
        settings = spec.own_history or OwnHistory()
        if case.success is False:
            return Score(0.0, "the task failed")
        needed = measured(settings, case)
        if needed is None:
            return Score(None, f"nobody said how much it needed ({settings.key or settings.measure})")
        if tools.history is None or not case.agent:
            return Score(None, "there is no history without an agent")
        standing = await tools.history(case, settings, needed)
        if standing.episodes < FEWEST:
            return Score(None, f"{standing.episodes} earlier successes, {FEWEST} needed")
        better = (standing.more + 0.5 * standing.equal) / standing.episodes
        return Score(better, f"{needed:g}; {standing.more} of {standing.episodes} earlier successes needed more")


def measured(settings: OwnHistory, case: Case) -> float | None:
    """What this episode needed; None where nobody said."""
    if settings.measure == "steps":
        return float(case.steps)
    if settings.measure == "seconds":
        return case.seconds
    found = case.values.get(settings.key or "")
    return float(found) if isinstance(found, int | float) else None
