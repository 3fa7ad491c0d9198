"""`regex`: a pattern is found in the output, in linear time whatever the pattern.

Python's own engine backtracks: `(a+)+$` and forty letters would hold a process for days. The engine here is the one
that matches the patterns of JSON schemas (Rust's `regex`), which has no look-around and no back-references for that.
"""

from functools import lru_cache
from typing import Any, ClassVar

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, as_text
from learnloop_dataplane.evaluators.schemas.linear_schemas import validator


class Regex(EvaluatorType):
    """Found or not."""

    name: ClassVar[str] = "regex"

    def check(self, spec: Evaluator) -> None:
        """The pattern is one that this engine has."""
        pattern = spec.regex.pattern if spec.regex else ""
        try:
            _matcher(pattern)
        except ValueError:
            raise Invalid(
                "no pattern of this engine; write one without look-around and back-references that compiles to less "
                "than 1 MiB",
                field="regex.pattern",
                value=pattern,
            ) from None

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """1 or 0."""
        if spec.regex is None:
            return Score(None, "regex.pattern is missing")
        try:
            found = bool(_matcher(spec.regex.pattern).is_valid(as_text(case.output)))
        except ValueError:
            return Score(None, "regex.pattern is none of this engine")
        said = "the pattern is found" if found else "the pattern is not found"
        return Score(float(found != spec.regex.absent), said)


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> Any:
    """Compiled once.

    Raises:
        ValueError: it is no pattern.
    """
    return validator({"type": "string", "pattern": pattern})
