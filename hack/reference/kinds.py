"""One page for each kind, from its CustomResourceDefinition, which is generated from the pydantic models."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from reference.markdown import code, outside_code, page, table

ROOT = Path(__file__).resolve().parents[2]
_BOUNDS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "exclusiveMinimum": None,
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} entries",
    "pattern": "matches `{}`",
}


def pages() -> Iterator[tuple[str, str]]:
    """File name and text of each kind's page."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        definition = yaml.safe_load(path.read_text())
        names = definition["spec"]["names"]
        version = definition["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        group = f"{definition['spec']['group']}/{version['name']}"
        short = ", ".join(code(name) for name in names.get("shortNames", []))
        head = f"{outside_code(schema.get('description', ''))}\n\n`apiVersion: {group}`, `kind: {names['kind']}`" + (
            f", short name {short}." if short else "."
        )
        columns = table(
            ("column of `kubectl get`", "value", "shown"),
            [
                (item["name"], code(item["jsonPath"]), "`-o wide`" if item.get("priority") else "always")
                for item in version.get("additionalPrinterColumns", [])
            ],
        )
        parts = [head, columns]
        for part in ("spec", "status"):
            if part in schema["properties"]:
                parts += _fields(part, schema["properties"][part])
        yield f"{names['singular']}.md", page(names["kind"], "its model in `crds/learnloop_api/kinds`", *parts)


def _fields(path: str, schema: dict[str, Any]) -> list[str]:
    """A section for the object at `path`, then one for each object below it."""
    title = f"## `{path}`" if "." not in path else f"### `{path}`"
    text = [title, outside_code(schema.get("description", ""))]
    required = set(schema.get("required", []))
    rows, deeper = [], []
    for name, field in schema.get("properties", {}).items():
        inner, suffix = _inner(field)
        rows.append((code(name), _type(field), _default(name, field, required), _meaning(field)))
        if any("description" in below for below in inner.get("properties", {}).values()):  # else another page has them
            deeper.append((f"{path}.{name}{suffix}", inner))
    text.append(table(("field", "type", "default", "meaning"), rows))
    text += [f"- {outside_code(rule['message'])}" for rule in schema.get("x-kubernetes-validations", [])]
    return [*text, *(part for place, inner in deeper for part in _fields(place, inner))]


def _inner(field: dict[str, Any]) -> tuple[dict[str, Any], str]:
    if "items" in field:
        return field["items"], "[]"
    if isinstance(field.get("additionalProperties"), dict):
        return field["additionalProperties"], ".*"
    return field, ""


def _type(field: dict[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if field.get("x-kubernetes-preserve-unknown-fields"):
        return "any"
    inner, suffix = _inner(field)
    kind = str(inner.get("format") or inner.get("type", "any"))
    return {"[]": f"list of {kind}", ".*": f"map to {kind}", "": kind}[suffix]


def _default(name: str, field: dict[str, Any], required: set[str]) -> str:
    if "default" in field:
        value = field["default"]
        return code(str(value).lower() if isinstance(value, bool) else value) if value not in ({}, []) else "empty"
    return "**required**" if name in required else ""


def _meaning(field: dict[str, Any]) -> str:
    inner, _ = _inner(field)
    parts = [str(field.get("description") or inner.get("description", ""))]
    if "enum" in inner:
        parts.append("One of " + ", ".join(code(value) for value in inner["enum"]) + ".")
    limits = [text.format(field[key]) for key, text in _BOUNDS.items() if text and key in field]
    if limits:
        parts.append("(" + ", ".join(limits) + ")")
    parts += [
        f"Rule: {rule['message']}." for rule in field.get("x-kubernetes-validations", []) if "properties" not in inner
    ]
    return " ".join(part for part in parts if part)
