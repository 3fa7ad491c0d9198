"""The page of events on NATS, from their JSON Schemas."""

import json
from collections.abc import Iterator
from typing import Any

from learnloop_api.events import EVENTS, schema
from reference.markdown import code, outside_code, page, table


def pages() -> Iterator[tuple[str, str]]:
    """The one page of events."""
    parts = ["Every event is one JSON object on NATS JetStream. Its schema is at `GET /api/v1/schemas/SUBJECT`, too."]
    for subject in EVENTS:
        document = schema(subject)
        required = set(document.get("required", []))
        rows = [
            (code(name), _type(field), "**required**" if name in required else "", str(field.get("description", "")))
            for name, field in document["properties"].items()
        ]
        parts += [f"## `{subject}.<namespace>.<name>`", outside_code(str(document.get("description", "")))]
        parts.append(table(("field", "type", "", "meaning"), rows))
        for example in document.get("examples", [])[:1]:
            parts.append(f"```json\n{json.dumps(example, indent=2)}\n```")
    yield "events.md", page("Events on NATS", "the wire models in `crds/learnloop_api/wire`", *parts)


def _type(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return str(field["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_type(item) for item in field["anyOf"]))
    if "enum" in field or "const" in field:
        return ", ".join(code(item) for item in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("format") or field.get("type") or "any")
