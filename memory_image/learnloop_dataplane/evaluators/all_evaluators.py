"""All evaluators by the name that a RewardPolicy gives them. Each is registered here, once."""

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import Unavailable
from learnloop_dataplane.evaluators import code_checks, comparisons, evaluator, llm_judge, scorers

EVALUATORS: dict[str, evaluator.EvaluatorType] = {
    kind.name: kind
    for kind in (
        comparisons.Exact(),
        comparisons.Fuzzy(),
        comparisons.Numeric(),
        comparisons.JsonSchema(),
        comparisons.Regex(),
        code_checks.Linter(),
        code_checks.UnitTests(),
        llm_judge.Judged(),
        scorers.Preferred(),
    )
}


async def score(spec: Evaluator, case: evaluator.Case, tools: evaluator.Tools) -> evaluator.Score:
    """Scores an output; without a value where the evaluator does not apply.

    Raises:
        Unavailable: a service that it asks does not answer; try again later.
    """
    kind = EVALUATORS[spec.type]
    if spec.task_types and case.task_type not in spec.task_types:
        return evaluator.Score(None, f"task type {case.task_type or '(none)'} is not evaluated")
    if case.output is None:
        return evaluator.Score(None, "the episode has no output")
    if kind.needs_expected and case.expected is None:
        return evaluator.Score(None, "the episode has no expected output")
    try:
        longest = max(len(evaluator.as_text(value)) for value in (case.output, case.expected))
    except (ValueError, RecursionError):
        return evaluator.Score(None, "output or expected is too deep, or holds a number of too many digits")
    if longest > evaluator.MAX_TEXT:
        return evaluator.Score(None, f"output or expected is longer than {evaluator.MAX_TEXT} characters")
    return await kind.score(spec, case, tools)


async def score_or_say(spec: Evaluator, case: evaluator.Case, tools: evaluator.Tools) -> evaluator.Score:
    """Scores an output; without a value where a service does not answer."""
    try:
        return await score(spec, case, tools)
    except Unavailable as error:
        return evaluator.Score(None, error.message[:500])
