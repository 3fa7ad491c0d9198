"""Evaluators that compare an answer with an expected text, number or pattern."""

import math
import re
from collections import Counter, deque
from functools import lru_cache
from typing import Any, ClassVar

from rapidfuzz.distance import Levenshtein

from learnloop_api.kinds.evaluators import Evaluator, ExactMatch, FuzzyMatch, NumericTolerance
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, as_text, squeezed
from learnloop_dataplane.evaluators.json_schema import validator


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


MINUS = "\N{MINUS SIGN}"
"""As typography and language models write it."""
_EXPONENT = f"(?:[eE][-+{MINUS}]?\\d{{1,3}})?"
_NUMBER = re.compile(
    rf"[-+{MINUS}]?(?:(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?|(?<![\w.])\.\d+){_EXPONENT}",  # 7, 1,250.5 and .5
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
        last = deque(_NUMBER.finditer(value), maxlen=1) if isinstance(value, str) else ()
        if not last or len(last[0][0]) > _LONGEST:
            return None
        text = last[0][0].replace(",", "").replace(MINUS, "-")
        found = float(text.lstrip("+-") if _is_hyphen(value, last[0].start()) else text)
    return found if math.isfinite(found) else None


def _is_hyphen(text: str, at: int) -> bool:
    """Whether a sign here joins it to what is before, as in GPT-4, pages 3-5 and 10%-15%; 温度是-5度 has a minus."""
    before = text[at - 1] if at else ""
    return before in tuple(f"%)]°-+{MINUS}") or before.isdigit() or before.lower() != before.upper()


MAX_CHARACTERS, BLOCK = 4096, 512
"""Longer differences are compared block by block: a whole comparison of the longest texts takes 17 s."""
_WORD = re.compile(r"\w+")


class Fuzzy(EvaluatorType):
    """By words, or by characters; case and runs of space do not count."""

    name: ClassVar[str] = "fuzzy"
    needs_expected: ClassVar[bool] = True

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """The similarity, 0 where it is below `atLeast`."""
        settings = spec.fuzzy or FuzzyMatch()
        output, expected = (squeezed(as_text(text)).casefold() for text in (case.output, case.expected))
        found = shared_words(output, expected) if settings.measure == "words" else alike(output, expected)
        note = f"{found:.3f} similar by {settings.measure}"
        if found < settings.at_least:
            return Score(0.0, f"{note}, {settings.at_least:g} needed")
        return Score(found, note)


def shared_words(output: str, expected: str) -> float:
    """F1 of the words (Rajpurkar et al., "SQuAD", EMNLP 2016); two texts without a word are alike."""
    said, wanted = Counter(_WORD.findall(output)), Counter(_WORD.findall(expected))
    if not said or not wanted:
        return float(said == wanted)
    return 2.0 * (said & wanted).total() / (said.total() + wanted.total())


def alike(output: str, expected: str) -> float:
    """1 - edit distance / length of the longer text; lower where texts differ over more than MAX_CHARACTERS."""
    longest = max(len(output), len(expected))
    begin = _alike_for(output, expected)
    one, other = output[begin:], expected[begin:]
    end = _alike_for(one[::-1], other[::-1])
    one, other = one[: len(one) - end], other[: len(other) - end]
    differ = max(len(one), len(other))
    size = MAX_CHARACTERS if differ <= MAX_CHARACTERS else BLOCK
    distance = sum(Levenshtein.distance(one[at : at + size], other[at : at + size]) for at in range(0, differ, size))
    return 1.0 - distance / longest if longest else 1.0


def _alike_for(one: str, other: str) -> int:
    """Characters that both begin with."""
    differing = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


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
