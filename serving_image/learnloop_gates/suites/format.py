"""format: does it keep to the form that was asked for, and does it call tools as their schema says?"""

import re
import sys
from collections.abc import Mapping
from itertools import product
from typing import Any

import orjson

from learnloop_gates.cases import Case, Labelled, Reply, ToolCall, said
from learnloop_gates.prompt_files import case_of, rows
from learnloop_gates.settings import SuiteSettings
from learnloop_gates.suite import Suite, digest_of

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_FENCE = re.compile(r"^```[a-z]*\n(.*)\n```$", re.DOTALL)
PEOPLE = ("Anna", "Bruno", "Chen", "Dana", "Emre", "Farah", "Gil", "Hana", "Ivo", "Jun")
TOWNS = ("Rome", "Oslo", "Lima", "Cairo", "Kyoto", "Quito", "Riga", "Bern", "Perth", "Dakar")
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "town": {"type": "string"}},
    "required": ["name", "age", "town"],
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a town.",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string"}, "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}},
            "required": ["town"],
            "additionalProperties": False,
        },
    },
}


def form(settings: SuiteSettings) -> Suite:
    """A failure is an answer that is no JSON of the schema, or a call that its tool cannot take."""
    if settings.data:
        cases = [case_of(row) for row in rows(settings.data)]
    else:
        cases = []
        for number, (person, town) in enumerate(product(PEOPLE, TOWNS)):
            text = f"{person} is {20 + number % 60} years old and lives in {town}."
            ask = f"{text} Answer with a JSON object alone, with the keys name, age (a number) and town."
            cases.append(Case(said(ask), facts={"schema": PERSON}))
            for unit in ("celsius", "fahrenheit"):
                want = f"{person} asks: how warm is it in {town}, in {unit}? Use the tool."
                cases.append(Case(said(want), (WEATHER,), {"must_call": "get_weather"}))
    return Suite(cases, _broken, _labelled(), "schemas", digest_of(sys.modules[__name__]))


def _broken(case: Case, reply: Reply) -> str:
    known = {str(tool["function"]["name"]): tool["function"].get("parameters") or {} for tool in case.tools}
    for call in reply.calls:
        if call.name not in known:
            return "unknown-tool"
        found = _json(call.arguments)
        if not isinstance(found, dict) or not fits(found, known[call.name]):
            return "bad-arguments"
    wanted = case.facts.get("must_call")
    if wanted and wanted not in [call.name for call in reply.calls]:
        return "no-call"
    schema = case.facts.get("schema")
    if isinstance(schema, dict):
        text = _FENCE.sub(r"\1", reply.text.strip())
        found = _json(text)
        return "no-json" if found is None else "" if fits(found, schema) else "wrong-schema"
    return ""


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value keeps to `type`, `enum`, `properties`, `required`, `additionalProperties: false` and `items`:
    what the parameters of tools are written with. Other keywords of JSON Schema are not looked at."""
    kinds = schema.get("type")
    if kinds is not None and not any(_is(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return all(fits(item, schema["items"]) for item in value)
    if not isinstance(value, dict):
        return True
    properties = schema.get("properties") or {}
    if any(key not in value for key in schema.get("required") or ()):
        return False
    if schema.get("additionalProperties") is False and any(key not in properties for key in value):
        return False
    return all(fits(item, properties[key]) for key, item in value.items() if key in properties)


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, ()))


def _labelled() -> list[Labelled]:
    asked = Case(said("Answer with JSON."), facts={"schema": PERSON})
    call = Case(said("How warm is it in Rome?"), (WEATHER,), {"must_call": "get_weather"})
    good_text = ('{"name": "Anna", "age": 20, "town": "Rome"}', '```json\n{"name": "B", "age": 1, "town": "X"}\n```')
    bad_text = (
        '{"name": "Anna", "age": "twenty", "town": "Rome"}',
        '{"name": "Anna", "town": "Rome"}',
        "Anna is 20 and lives in Rome.",
        'Sure: {"name": "Anna", "age": 20, "town": "Rome"}',
        '{"name": "Anna", "age": 20, "town": "Rome"',
        "[]",
    )
    good_calls = ('{"town": "Rome"}', '{"town": "Rome", "unit": "celsius"}')
    bad_calls = ('{"unit": "celsius"}', '{"town": "Rome", "unit": "kelvin"}', '{"town": 3}', "Rome", '{"city": "Rome"}')
    labelled = [Labelled(asked, Reply(text), False) for text in good_text]
    labelled += [Labelled(asked, Reply(text), True) for text in bad_text]
    labelled += [Labelled(call, Reply("", (ToolCall("get_weather", text),)), False) for text in good_calls]
    labelled += [Labelled(call, Reply("", (ToolCall("get_weather", text),)), True) for text in bad_calls]
    labelled.append(Labelled(call, Reply("", (ToolCall("weather", '{"town": "Rome"}'),)), True))
    labelled.append(Labelled(call, Reply("It is warm."), True))
    return labelled
