"""`json-schema`: checks outputs by JSON Schemas, in place.

A check takes no more steps than the schema has bytes times the output has bytes, so both together are bounded. Schemas
that could take more are refused when the policy is published: references are replaced by what they name, and may not be
recursive; patterns match in linear time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar
from urllib.parse import unquote

import orjson

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools

MOST_STEPS = 2**26
"""Bytes of the schema times bytes of the output: about 50 ms."""
MOST_PARTS = 10_000
"""Objects and lists of a schema with its references replaced."""
COSTLY = frozenset(
    ("$dynamicRef", "$recursiveRef", "contains", "unevaluatedItems", "unevaluatedProperties", "uniqueItems")
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
        ValueError: the schema is invalid, refers to something outside of it, or has an unusable pattern.
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


class References:
    """Replaces each `$ref` of one schema by the part of the schema that it names."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema, self._parts = schema, 0

    def replaced(self) -> Any:
        """The schema without references.

        Raises:
            ValueError: a reference is recursive or names nothing, or the result is too large.
        """
        named = {key: value for key, value in self._schema.items() if key not in ("$defs", "definitions")}
        return self._of(named, ())

    def _of(self, value: Any, within: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            self._count()
            return [self._of(item, within) for item in value]
        if not isinstance(value, dict):
            return value
        self._count()
        reference = value.get("$ref")
        others = {key: self._under(key, item, within) for key, item in value.items() if key != "$ref"}
        if not isinstance(reference, str):
            return others
        if reference in within:
            raise ValueError(f"$ref {reference} is recursive: write as many levels as the output has")
        target = self._of(self._named(reference), (*within, reference))
        return {**others, "allOf": [target, *others.get("allOf", [])]} if others else target

    def _under(self, key: str, value: Any, within: tuple[str, ...]) -> Any:
        if key in NAMED and isinstance(value, dict):
            return {name: self._of(item, within) for name, item in value.items()}
        return value if key in VALUES else self._of(value, within)

    def _named(self, reference: str) -> Any:
        if reference != "#" and not reference.startswith("#/"):
            raise ValueError(f"$ref {reference[:100]} points outside of the schema: use #/$defs/NAME")
        part: Any = self._schema
        for key in unquote(reference).split("/")[1:]:
            name = key.replace("~1", "/").replace("~0", "~")
            if isinstance(part, list) and name.isdecimal() and int(name) < len(part):
                part = part[int(name)]
            elif isinstance(part, dict) and name in part:
                part = part[name]
            else:
                raise ValueError(f"$ref {reference[:100]} names nothing in the schema: correct it")
        return part

    def _count(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise ValueError(f"more than {MOST_PARTS} parts with its references replaced: use fewer references")


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """A validator, and the bytes of its schema without references."""

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
    if isinstance(schema, dict):
        validator(schema)  # an invalid schema is refused before its references are read
        if costly := sorted({word for part in _schemas(schema) for word in COSTLY & part.keys()}):
            raise ValueError(f"{', '.join(costly)} may take too long to check: remove it")
        try:
            schema = References(schema).replaced()
        except RecursionError:
            raise ValueError("it is nested too deep") from None
    return CheckedSchema(validator(schema), len(orjson.dumps(schema)))


def _unfenced(text: str) -> str:
    """The text between Markdown fences, where nothing else is there."""
    stripped = text.strip()
    if not (stripped.startswith(FENCE) and stripped.endswith(FENCE) and "\n" in stripped):
        return stripped
    return stripped.split("\n", 1)[1].removesuffix(FENCE)
