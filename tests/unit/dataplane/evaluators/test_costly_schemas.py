"""JSON schemas and outputs that would cost days or gigabytes are refused, and a check delays no other request."""

import asyncio
import json
import resource
import time

import pytest

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.all_evaluators import EVALUATORS, score
from learnloop_dataplane.evaluators.evaluator import Case, Score, Tools

LARGEST_PAUSE = 1.0


def evaluator(schema) -> Evaluator:
    text = json.dumps(schema, separators=(",", ":"))
    return Evaluator.model_validate({"type": "json-schema", "jsonSchema": {"schema": text}})


async def scored(schema, output) -> tuple[Score, float]:
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
    ("schema", "why"),
    [
        ({"items": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}, r"\$ref may take too long to check"),
        ({"$ref": "#/$defs/t", "$defs": {"t": {"type": "null"}}}, r"\$ref .*: write what is meant in its place"),
        ({"$dynamicRef": "#"}, "dynamicRef"),
        ({"unevaluatedItems": False, "allOf": [{"contains": {"const": 1}}]}, "contains, unevaluatedItems"),
        ({"properties": {"a": {"items": {"uniqueItems": True}}}}, "uniqueItems"),
    ],
)
def test_a_schema_whose_check_may_never_end_is_refused_when_it_is_published(schema, why: str) -> None:
    started = time.process_time()
    with pytest.raises(Invalid, match=why):
        EVALUATORS["json-schema"].check(evaluator(schema))
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "null"}] * 900},
        {"items": {"anyOf": [{"type": "null"}] * 900}},
        {"items": {"items": {"items": {"allOf": [{"minimum": 1}] * 900}}}},
    ],
)
async def test_an_output_that_breaks_a_schema_in_many_places_takes_little_memory_and_time(schema) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for output in ("x" * 3000, [7] * 1500, [[[0] * 10] * 10] * 10):
        result, pause = await scored(schema, output)
        assert result.value in (0.0, 1.0)
        assert pause < LARGEST_PAUSE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


async def test_a_schema_and_an_output_that_are_too_large_together_are_not_checked() -> None:
    result, pause = await scored({"allOf": [{"type": "null"}] * 900}, '"' + "x" * 260_000 + '"')
    assert result.value is None
    assert "simplify the schema, or shorten the output" in result.note
    assert pause < LARGEST_PAUSE


async def test_a_schema_and_a_large_output_are_judged_all_the_same() -> None:
    pair = {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}
    assert (await scored(pair, "[[1,2],[3,4]]"))[0] == Score(1.0, "the schema accepts the output")
    result, _ = await scored(pair, {"no": "list"})
    assert (result.value, result.note) == (0.0, 'the output: {"no":"list"} is not of type "array"')
    inside, _ = await scored(pair, [[1], [2, "x"]])
    assert (inside.value, inside.note) == (0.0, '1/1: "x" is not of type "number"')
    named = {"properties": {"contains": {"const": {"$ref": "a"}}, "$ref": {"type": "string"}}}
    assert (await scored(named, {"contains": {"$ref": "a"}, "$ref": "b"}))[0].value == 1.0
    assert (await scored(named, {"$ref": 1}))[0].value == 0.0
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
