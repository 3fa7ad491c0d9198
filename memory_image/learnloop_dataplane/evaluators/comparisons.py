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
    """The compared form of a value; true is not 1."""
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
        wanted, number = number_in(case.expected), number_in(case.output)
        if wanted is None:
            return Score(None, "expected contains no number")
        if number is None:
            return Score(0.0, "the output contains no number")
        allowed = max(settings.absolute, settings.relative * abs(wanted))
        near = abs(number - wanted) <= allowed
        return Score(float(near), f"{number:g} is {'within' if near else 'not within'} {allowed:g} of {wanted:g}")


def number_in(value: Any) -> float | None:
    """The number, or the last one in a text; None where there is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            return None
    else:
        last = deque(_NUMBER.finditer(value), maxlen=1) if isinstance(value, str) else ()
        if not last or len(last[0][0]) > _LONGEST:
            return None
        text = last[0][0].replace(",", "").replace(MINUS, "-")
        number = float(text.lstrip("+-") if _is_hyphen(value, last[0].start()) else text)
    return number if math.isfinite(number) else None


def _is_hyphen(text: str, at: int) -> bool:
    """Whether a sign belongs to the text before it, as in GPT-4, pages 3-5 and 10%-15%; 温度是-5度 has a minus."""
    before = text[at - 1] if at else ""
    return before in tuple(f"%)]°-+{MINUS}") or before.isdigit() or before.lower() != before.upper()


MAX_CHARACTERS = 32_768
"""Of each text that is compared by characters: two such texts take 0.1 s, and the time grows with the square."""
_WORD = re.compile(r"\w+")


class Fuzzy(EvaluatorType):
    """By words, or by characters; case and runs of space do not count."""

    name: ClassVar[str] = "fuzzy"
    needs_expected: ClassVar[bool] = True

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """The similarity, 0 where it is below `atLeast`."""
        settings = spec.fuzzy or FuzzyMatch()
        output, expected = (squeezed(as_text(text)).casefold() for text in (case.output, case.expected))
        if settings.measure == "words":
            similarity = shared_words(output, expected)
        elif max(len(output), len(expected)) > MAX_CHARACTERS:
            return Score(None, f"more than {MAX_CHARACTERS} characters: compare by words")
        else:
            similarity = Levenshtein.normalized_similarity(output, expected)
        note = f"{similarity:.3f} similar by {settings.measure}"
        if similarity < settings.at_least:
            return Score(0.0, f"{note}, {settings.at_least:g} needed")
        return Score(similarity, note)


def shared_words(output: str, expected: str) -> float:
    """F1 of the words (Rajpurkar et al., "SQuAD", EMNLP 2016); two texts without a word are alike."""
    given, wanted = Counter(_WORD.findall(output)), Counter(_WORD.findall(expected))
    if not given or not wanted:
        return float(given == wanted)
    return 2.0 * (given & wanted).total() / (given.total() + wanted.total())


class Regex(EvaluatorType):
    """Whether a pattern is found."""

    name: ClassVar[str] = "regex"

    def check(self, spec: Evaluator) -> None:
        """Compiles the pattern."""
        pattern = spec.regex.pattern if spec.regex else ""
        try:
            _matcher(pattern)
        except ValueError:
            raise Invalid(
                "invalid pattern: write one without look-around and back-references that compiles to less than 1 MiB",
                field="regex.pattern",
                value=pattern,
            ) from None

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """1 or 0."""
        if spec.regex is None:
            return Score(None, "regex.pattern is missing")
        try:
            matched = bool(_matcher(spec.regex.pattern).is_valid(as_text(case.output)))
        except ValueError:
            return Score(None, "regex.pattern is invalid")
        note = "the pattern is found" if matched else "the pattern is not found"
        return Score(float(matched != spec.regex.absent), note)


@lru_cache(maxsize=64)
def _matcher(pattern: str) -> Any:
    """Compiled once.

    Raises:
        ValueError: the pattern is invalid.
    """
    return validator({"type": "string", "pattern": pattern})
