"""All evaluators by the name that a RewardPolicy gives them. Each is registered here, once."""

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.evaluators import code, comparisons, judge, scorers
from learnloop_dataplane.evaluators.evaluator import (
    MAX_TEXT,
    Case,
    EvaluatorType,
    Score,
    Tools,
    as_text,
)

EVALUATORS: dict[str, EvaluatorType] = {
    kind.name: kind
    for kind in (
        comparisons.Exact(),
        comparisons.Fuzzy(),
        comparisons.Numeric(),
        comparisons.JsonSchema(),
        comparisons.Regex(),
        code.Linter(),
        code.UnitTests(),
        judge.Judged(),
        scorers.Preferred(),
    )
}


async def score(spec: Evaluator, case: Case, tools: Tools) -> Score:
    """Scores an output; without a value where the evaluator does not apply.

    Raises:
        Unavailable: a service that it asks does not answer; try again later.
    """
    kind = EVALUATORS[spec.type]
    if spec.task_types and case.task_type not in spec.task_types:
        return Score(None, f"task type {case.task_type or '(none)'} is not evaluated")
    if case.output is None:
        return Score(None, "the episode has no output")
    if kind.needs_expected and case.expected is None:
        return Score(None, "the episode has no expected output")
    try:
        longest = max(len(as_text(value)) for value in (case.output, case.expected))
    except (ValueError, RecursionError):
        return Score(None, "output or expected is too deep, or holds a number of too many digits")
    if longest > MAX_TEXT:
        return Score(None, f"output or expected is longer than {MAX_TEXT} characters")
    return await kind.score(spec, case, tools)


async def score_or_say(spec: Evaluator, case: Case, tools: Tools) -> Score:
    """Scores an output; without a value where a service does not answer."""
    try:
        return await score(spec, case, tools)
    except Unavailable as error:
        return Score(None, error.message[:500])
