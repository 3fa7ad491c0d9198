"""Checks answers by JSON Schemas: simple schemas here, costly ones in a process of their own."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import Process
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import orjson

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.concurrency.limits import FairPlaces
from learnloop_dataplane.concurrency.offload import process_apart
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools
from learnloop_dataplane.evaluators.linear_schemas import accepted, objects, validator

CHEAP = 2**20
"""Bytes of the schema times bytes of the value; without references and these keywords no check takes more steps."""
COSTLY = frozenset(
    ("$ref", "$dynamicRef", "$recursiveRef", "contains", "unevaluatedItems", "unevaluatedProperties", "uniqueItems")
)
CPU_SECONDS = 2
SECONDS = 10.0
"""Until it is there, on a busy machine."""
MEBIBYTES = 160
"""Of addresses; the longest output takes some 48 of them."""
AT_ONCE = 2
LONGEST = 4096
PROGRAM = "learnloop_dataplane.evaluators.schema_process"
_places = FairPlaces(AT_ONCE)


class TooCostly(Exception):
    """Nobody knows whether the schema accepts the value: that takes too long, or too much memory."""


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """A schema that is ready to check values.

    Attributes:
        accepts: its validator.
        written: as JSON in one line.
        costly: some word in it may make a check take more steps than the sizes say.
    """

    accepts: Any
    written: bytes
    costly: bool

    @classmethod
    def of(cls, schema: dict[str, Any] | bool) -> "CheckedSchema":
        """Raises ValueError as `validator` does."""
        costly = any(not COSTLY.isdisjoint(part) for part in objects(schema))
        return cls(validator(schema), orjson.dumps(schema), costly)


async def verdict(schema: CheckedSchema, output: Any, namespace: str = "") -> str | None:
    """None: the schema accepts the output. Else where it does not, and why.

    Raises:
        TooCostly: it was stopped.
    """
    value = orjson.dumps(output, option=orjson.OPT_NON_STR_KEYS)
    if len(schema.written) * len(value) <= CHEAP and not schema.costly:
        return accepted(schema.accepts, output)
    async with _places.of(namespace):
        found, _, why = (await _apart(schema.written, value)).partition(b"\n")
    if found == b"yes":
        return None
    if found == b"no":
        return why.decode(errors="replace") or "the schema does not accept the output"
    raise TooCostly


async def _apart(written: bytes, value: bytes) -> bytes:
    said = bytearray()

    async def talk(process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(written + b"\n" + value)
        process.stdin.close()
        while len(said) < LONGEST and (part := await process.stdout.read(LONGEST)):
            said.extend(part)
        if len(said) < LONGEST:
            await process.wait()

    limits = str(CPU_SECONDS), str(MEBIBYTES << 20)
    async with process_apart(sys.executable, "-m", PROGRAM, *limits) as process:
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(SECONDS):
                await talk(process)
    return bytes(said)


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
