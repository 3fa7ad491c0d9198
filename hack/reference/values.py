"""The page of the chart's values, from values.yaml and values.schema.json."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from reference.markdown import code, page, table

CHART = Path(__file__).resolve().parents[2] / "charts" / "learnloop"


def pages() -> Iterator[tuple[str, str]]:
    """The one page of values."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    definitions = schema.get("definitions") or schema.get("$defs") or {}
    parts = []
    for name, value in values.items():
        about = _resolved(schema["properties"].get(name, {}), definitions)
        rows = list(_rows(name, value, about, definitions))
        described = str(about.get("description", "")) if isinstance(value, dict) and value else ""
        parts += [f"## `{name}`", described, table(("value", "default", "meaning"), rows)]
    yield "chart-values.md", page("Values of the chart", "`charts/learnloop/values.yaml` and its schema", *parts)


def _rows(path: str, value: Any, schema: dict[str, Any], definitions: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            below = schema.get("properties", {}).get(name, {})
            yield from _rows(f"{path}.{name}", inner, _resolved(below, definitions), definitions)
        return
    text = str(schema.get("description", ""))
    if "enum" in schema:
        text += " One of " + ", ".join(code(json.dumps(item)) for item in schema["enum"]) + "."
    yield code(path), code(json.dumps(value)), text


def _resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if not reference:
        return schema
    return {
        **definitions[reference.rsplit("/", 1)[-1]],
        **{key: value for key, value in schema.items() if key != "$ref"},
    }
