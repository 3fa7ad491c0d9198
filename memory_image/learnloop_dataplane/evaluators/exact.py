"""`exact`: the output is the expected one."""

from typing import Any, ClassVar

from learnloop_api.kinds.evaluators import Evaluator, ExactMatch
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, squeezed


class Exact(EvaluatorType):
    """Texts by their characters, everything else by its value."""

    name: ClassVar[str] = "exact"
    needs_expected: ClassVar[bool] = True

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """1 or 0."""
        settings = spec.exact or ExactMatch()
        same = _form(case.output, settings) == _form(case.expected, settings)
        return Score(float(same), "the output is the expected one" if same else "the output differs from the expected")


def _form(value: Any, settings: ExactMatch) -> Any:
    """What is compared; true is not 1."""
    if isinstance(value, str):
        text = squeezed(value) if settings.ignore_space else value
        return text.casefold() if settings.ignore_case else text
    if isinstance(value, list):
        return [_form(item, settings) for item in value]
    if isinstance(value, dict):
        return {key: _form(item, settings) for key, item in value.items()}
    return (isinstance(value, bool), value)
