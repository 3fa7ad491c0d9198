"""`numeric`: the output is a number near the expected one."""

import math
import re
from typing import Any, ClassVar

from learnloop_api.kinds.evaluators import Evaluator, NumericTolerance
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools

MINUS = "\N{MINUS SIGN}"
"""As typography and language models write it."""
BEFORE_A_SIGN = "\\s\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}(\\[{=:,;<>≤≥≈~±*/^$€£\"'`|_"
"""A sign stands behind one of these or begins a text; elsewhere it is a hyphen, as in GPT-4, pages 3-5 and 10%-15%."""
_SIGN, _EXPONENT = f"(?:(?<![^{BEFORE_A_SIGN}])[-+{MINUS}])?", f"(?:[eE][-+{MINUS}]?\\d{{1,3}})?"
_NUMBER = re.compile(
    rf"{_SIGN}(?:(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?|(?<![\w.])\.\d+){_EXPONENT}",  # 7, 1,250.5 and .5
    re.ASCII,
)
_LONGEST = 400
"""Characters of a number: more digits than any float has."""


class Numeric(EvaluatorType):
    """A number, or a text; of a text its last number counts, as answers end with their result."""

    name: ClassVar[str] = "numeric"
    needs_expected: ClassVar[bool] = True

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """1 or 0; an expected answer without a number cannot be compared."""
        settings = spec.numeric or NumericTolerance()
        wanted, said = number_in(case.expected), number_in(case.output)
        if wanted is None:
            return Score(None, "expected holds no number")
        if said is None:
            return Score(0.0, "the output holds no number")
        allowed = max(settings.absolute, settings.relative * abs(wanted))
        near = abs(said - wanted) <= allowed
        return Score(float(near), f"{said:g} is {'within' if near else 'not within'} {allowed:g} of {wanted:g}")


def number_in(value: Any) -> float | None:
    """The number, or the last one in a text; None where there is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            found = float(value)
        except OverflowError:
            return None
    else:
        texts = _NUMBER.findall(value) if isinstance(value, str) else []
        if not texts or len(texts[-1]) > _LONGEST:
            return None
        found = float(texts[-1].replace(",", "").replace(MINUS, "-"))
    return found if math.isfinite(found) else None
