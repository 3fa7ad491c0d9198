"""Evaluators that compare an answer with an expected text, number or pattern, or check it by a JSON Schema, in place.

A check by a schema takes no more steps than the schema has bytes times the output has bytes, so both together are
bounded. Schemas that could take more, such as those with references, are refused when the policy is published; patterns
match in linear time.
"""

import math
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import orjson
from rapidfuzz.distance import Levenshtein

from learnloop_api.kinds.evaluators import Evaluator, ExactMatch, FuzzyMatch, NumericTolerance
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, as_text, squeezed


class Exact(EvaluatorType):
    """Texts by their characters, everything else by its value."""

    name: ClassVar[str] = "exact"
    needs_expected: ClassVar[bool] = True

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
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


MOST_STEPS = 2**26
"""Bytes of the schema times bytes of the output: about 50 ms."""
COSTLY = frozenset(
    ("$ref", "$dynamicRef", "$recursiveRef", "contains", "unevaluatedItems", "unevaluatedProperties", "uniqueItems")
)
NAMED = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"))
"""Keywords whose keys are names, not keywords."""
VALUES = frozenset(("const", "enum", "default", "examples"))
PATTERN_BYTES = 2**20
"""Room for a compiled pattern; `(a{1000}){1000}` wants more and is refused."""
PATTERNS_BYTES, LEAST_BYTES = 2**23, 2**14
"""Room for all patterns of a schema, which they share; each has the least. `^[a-z]{2}-[0-9]{4}$` fits in the least."""
FENCE = "```"


def validator(schema: dict[str, Any] | bool) -> Any:
    """The library's validator; it fetches nothing. The library is imported with the first schema: it is 3 MiB.

    Raises:
        ValueError: the schema is invalid, or has an unusable pattern.
    """
    import jsonschema_rs

    count = _patterns(schema)
    room = max(LEAST_BYTES, min(PATTERN_BYTES, PATTERNS_BYTES // max(1, count)))
    linear = jsonschema_rs.RegexOptions(size_limit=room, dfa_size_limit=room)
    try:
        return jsonschema_rs.validator_for(schema, pattern_options=linear, offline=True)
    except jsonschema_rs.ReferencingError as error:
        raise ValueError(str(error)) from None
    except ValueError as error:
        if count < 2:
            raise
        why = str(error).splitlines()[0][:200]
        raise ValueError(f"{why} (each of its {count} patterns may compile to {room >> 10} KiB)") from None


def _patterns(schema: Any) -> int:
    """The number of patterns in a schema."""
    named = [part.get("patternProperties") for part in _schemas(schema)]
    return sum("pattern" in part for part in _schemas(schema)) + sum(len(one) for one in named if isinstance(one, dict))


def _schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and all schemas in it; not the values that it names."""
    rest = [schema]
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest.extend(value)
        elif isinstance(value, dict):
            yield value
            for key, item in value.items():
                if key in NAMED and isinstance(item, dict):
                    rest.extend(item.values())
                elif key not in VALUES:
                    rest.append(item)


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """A validator, and the bytes of its schema."""

    validator: Any
    size: int

    def complaint(self, output: Any, size: int) -> str | None:
        """The first place where the schema refuses the output, and why; None: it accepts the output.

        Raises:
            ValueError: schema and output are too large together.
        """
        import jsonschema_rs

        if self.size * size > MOST_STEPS:
            raise ValueError(
                f"the schema has {self.size} bytes and the output {size}, too many together to be checked: "
                "simplify the schema, or shorten the output"
            )
        try:
            self.validator.validate(output)
        except jsonschema_rs.ValidationError as error:
            where = "/".join(map(str, error.instance_path)) or "the output"
            return f"{where}: {str(error.message)[:200]}"
        return None


class JsonSchema(EvaluatorType):
    """JSON, or a text that is JSON, in a Markdown fence or not."""

    name: ClassVar[str] = "json-schema"

    def check(self, spec: Evaluator) -> None:
        text = spec.json_schema.json_schema if spec.json_schema else ""
        try:
            _checked(text)
        except ValueError as error:
            why = str(error).splitlines()[0][:300]
            raise Invalid(f"not a usable JSON Schema: {why}", field="jsonSchema.schema", value=text) from None

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        output = case.output
        if isinstance(output, str):
            try:
                output = orjson.loads(_unfenced(output))
            except ValueError as error:
                return Score(0.0, f"the output is not JSON: {str(error)[:200]}")
        size = len(orjson.dumps(output, option=orjson.OPT_NON_STR_KEYS))
        try:
            why = _checked(spec.json_schema.json_schema if spec.json_schema else "").complaint(output, size)
        except ValueError as error:
            return Score(None, f"jsonSchema.schema: {str(error).splitlines()[0][:300]}")
        return Score(1.0, "the schema accepts the output") if why is None else Score(0.0, why)


@lru_cache(maxsize=64)
def _checked(text: str) -> CheckedSchema:
    """Compiled once.

    Raises:
        ValueError: the schema is invalid, or a check of it could take too long.
    """
    schema = orjson.loads(text)
    if not isinstance(schema, dict | bool):
        raise ValueError("a schema is an object")
    if costly := sorted({word for part in _schemas(schema) for word in COSTLY & part.keys()}):
        raise ValueError(f"{', '.join(costly)} may take too long to check: write what is meant in its place")
    return CheckedSchema(validator(schema), len(orjson.dumps(schema)))


def _unfenced(text: str) -> str:
    """The text between Markdown fences, where nothing else is there."""
    stripped = text.strip()
    if not (stripped.startswith(FENCE) and stripped.endswith(FENCE) and "\n" in stripped):
        return stripped
    return stripped.split("\n", 1)[1].removesuffix(FENCE)
