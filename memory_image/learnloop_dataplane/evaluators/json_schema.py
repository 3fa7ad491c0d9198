"""`json-schema`: the output is JSON that a schema accepts.

The validator fetches nothing and matches patterns in linear time. What may take long is checked in a process of its
own, see `schemas_apart`, so that neither a policy nor an output can hang this one.
"""

from functools import lru_cache
from typing import ClassVar

import orjson

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools
from learnloop_dataplane.evaluators.schemas.schemas_apart import (
    CPU_SECONDS,
    MEBIBYTES,
    CheckedSchema,
    TooCostly,
    verdict,
)

FENCE = "```"
TOO_COSTLY = (
    f"jsonSchema.schema was stopped after {CPU_SECONDS} s of processor time or {MEBIBYTES} MiB of memory on this "
    "output; use fewer references within references, or bound the output by maxItems and maxLength"
)


class JsonSchema(EvaluatorType):
    """JSON, or a text that is JSON, in a Markdown fence or not."""

    name: ClassVar[str] = "json-schema"

    def check(self, spec: Evaluator) -> None:
        """The schema is one, and refers to nothing outside of it."""
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
                return Score(0.0, f"the output is no JSON: {str(error)[:200]}")
        text = spec.json_schema.json_schema if spec.json_schema else ""
        try:
            why = await verdict(_checked(text), output, tools.namespace)
        except ValueError:
            return Score(None, "jsonSchema.schema is no usable JSON Schema")
        except TooCostly:
            return Score(None, TOO_COSTLY)
        return Score(1.0, "the schema accepts the output") if why is None else Score(0.0, why)


@lru_cache(maxsize=64)
def _checked(schema: str) -> CheckedSchema:
    """Compiled once.

    Raises:
        ValueError: it is no schema, or a pattern is not one.
    """
    parsed = orjson.loads(schema)
    if not isinstance(parsed, dict | bool):
        raise ValueError("a schema is an object")
    return CheckedSchema.of(parsed)


def _unfenced(text: str) -> str:
    """What stands between Markdown fences, where the text is nothing else."""
    stripped = text.strip()
    if not (stripped.startswith(FENCE) and stripped.endswith(FENCE) and "\n" in stripped):
        return stripped
    return stripped.split("\n", 1)[1].removesuffix(FENCE)
