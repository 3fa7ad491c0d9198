"""JSON schemas and outputs that would cost days or gigabytes: what checks them ends, and holds up nobody."""

import asyncio
import json
import resource
import time
from typing import Any

import pytest

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, Score, Tools
from learnloop_dataplane.evaluators.registry import EVALUATORS, score

LEVELS = 60
LARGEST_PAUSE = 1.0


def doubled(keyword: str, end: dict[str, Any]) -> dict[str, Any]:
    """Each definition asks the next one twice: 2**LEVELS checks of one value."""
    following = [f"#/$defs/a{level + 1}" for level in range(LEVELS)]
    definitions = {f"a{level}": {keyword: [{"$ref": name}] * 2} for level, name in enumerate(following)}
    return {"$defs": definitions | {f"a{LEVELS}": end}, "$ref": "#/$defs/a0"}


def evaluator(schema: Any) -> Evaluator:
    text = json.dumps(schema, separators=(",", ":"))
    return Evaluator.model_validate({"type": "json-schema", "jsonSchema": {"schema": text}})


async def scored(schema: Any, output: Any) -> tuple[Score, float]:
    """The score, and the longest time that the event loop stood still."""
    longest = 0.0

    async def look() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)

    looking = asyncio.create_task(look())
    try:
        return await score(evaluator(schema), Case(output=output), Tools()), longest
    finally:
        looking.cancel()


@pytest.mark.parametrize(
    ("schema", "output"), [(doubled("anyOf", {"type": "number"}), '"x"'), (doubled("oneOf", {"type": "number"}), "1")]
)
async def test_a_schema_that_takes_for_ever_is_stopped_and_nobody_waits_for_it(schema: Any, output: str) -> None:
    started = time.monotonic()
    found, pause = await scored(schema, output)
    assert time.monotonic() - started < 30.0
    assert pause < LARGEST_PAUSE
    assert found.value is None
    assert "jsonSchema.schema was stopped after 2 s" in found.note


@pytest.mark.parametrize(
    ("schema", "output", "value"),
    [
        ({"items": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "[" * 120 + "0" + "]" * 120, 1.0),
        (
            {"unevaluatedItems": False, "allOf": [{"contains": {"const": number}} for number in range(600)]},
            f"[{'1,' * 130_000}1]",
            0.0,
        ),
    ],
    ids=["recursive", "unevaluated"],
)
async def test_a_verdict_is_given_before_every_reason_for_it_is_known(schema: Any, output: str, value: float) -> None:
    started = time.monotonic()
    found, pause = await scored(schema, output)
    assert time.monotonic() - started < 30.0
    assert pause < LARGEST_PAUSE
    assert found.value == value


async def test_an_output_that_breaks_a_schema_in_many_places_takes_little_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found, pause = await scored({"allOf": [{"type": "null"}] * 900}, '"' + "x" * 260_000 + '"')
    assert found.value == 0.0
    assert pause < LARGEST_PAUSE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


async def test_a_schema_with_references_and_a_large_output_is_judged_all_the_same() -> None:
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    assert (await scored(tree, "[[],[[[]],[]]]"))[0] == Score(1.0, "the schema accepts the output")
    found, _ = await scored(tree, {"no": "tree"})
    assert (found.value, found.note) == (0.0, 'the output: {"no":"tree"} is not of type "array"')
    inside, _ = await scored(tree, [[], [[], 1]])
    assert (inside.value, inside.note) == (0.0, '1/1: 1 is not of type "array"')
    numbers, _ = await scored({"items": {"type": "integer"}}, [7] * 60_000)
    assert numbers.value == 1.0


def test_the_patterns_of_a_schema_share_their_room() -> None:
    many = {"allOf": [{"pattern": f".{{900}}{number}"} for number in range(600)]}
    started = time.process_time()
    with pytest.raises(Invalid, match=r"600 patterns.* KiB"):
        EVALUATORS["json-schema"].check(evaluator(many))
    assert time.process_time() - started < 2.0
    EVALUATORS["json-schema"].check(
        evaluator({"allOf": [{"pattern": rf"^[a-z]+-\d{number}$"} for number in range(200)]})
    )
