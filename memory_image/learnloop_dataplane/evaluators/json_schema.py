"""`json-schema`: checks outputs by JSON Schemas, in place.

A check takes no more steps than the schema has bytes times the output has bytes, so both together are bounded. Schemas
that could take more, such as those with references, are refused when the policy is published; patterns match in linear
time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import orjson

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools

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
        """Compiles the schema."""
        text = spec.json_schema.json_schema if spec.json_schema else ""
        try:
            _checked(text)
        except ValueError as error:
            why = str(error).splitlines()[0][:300]
            raise Invalid(f"not a usable JSON Schema: {why}", field="jsonSchema.schema", value=text) from None

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """1 or 0."""
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
