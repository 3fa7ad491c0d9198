"""Where a JSON value is checked by a schema: here where that is surely cheap, else in a process that is stopped.

By references that double, a schema of 3 KiB can ask for 2**60 checks of one value. None of them can be interrupted in
this process, which serves every namespace.
"""

import asyncio
import contextlib
import sys
from asyncio.subprocess import Process
from dataclasses import dataclass
from typing import Any

import orjson

from learnloop_dataplane.concurrency.fair_places import FairPlaces
from learnloop_dataplane.concurrency.process_apart import process_apart
from learnloop_dataplane.evaluators.schemas.linear_schemas import accepted, objects, validator

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
PROGRAM = "learnloop_dataplane.evaluators.schemas.schema_process"
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
