"""`json-schema`: the output is JSON that a schema accepts.

The validator fetches nothing and matches patterns in linear time, so that neither a policy nor an output can hang it.
"""

from functools import lru_cache
from typing import Any, ClassVar

import orjson

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools
from learnloop_dataplane.evaluators.linear_schemas import validator

FENCE = "```"


class JsonSchema(EvaluatorType):
    """JSON, or a text that is JSON, in a Markdown fence or not."""

    name: ClassVar[str] = "json-schema"

    def check(self, spec: Evaluator) -> None:
        """The schema is one, and refers to nothing outside of it."""
        text = spec.json_schema.json_schema if spec.json_schema else ""
        try:
            _validator(text)
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
                return Score(0.0, f"the output is no JSON: {str(error)[:200]}")
        try:
            accepts = _validator(spec.json_schema.json_schema if spec.json_schema else "")
        except ValueError:
            return Score(None, "jsonSchema.schema is no usable JSON Schema")
        first = next(iter(accepts.iter_errors(output)), None)
        if first is None:
            return Score(1.0, "the schema accepts the output")
        where = "/".join(map(str, first.instance_path)) or "the output"
        return Score(0.0, f"{where}: {str(first.message)[:200]}")


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    """Compiled once.

    Raises:
        ValueError: it is no schema, or a pattern is not one.
    """
    parsed = orjson.loads(schema)
    if not isinstance(parsed, dict | bool):
        raise ValueError("a schema is an object")
    return validator(parsed)


def _unfenced(text: str) -> str:
    """What stands between Markdown fences, where the text is nothing else."""
    stripped = text.strip()
    if not (stripped.startswith(FENCE) and stripped.endswith(FENCE) and "\n" in stripped):
        return stripped
    return stripped.split("\n", 1)[1].removesuffix(FENCE)
