"""The page of the data plane's REST contract, from its OpenAPI document."""

from collections.abc import Iterator
from typing import Any

from learnloop_dataplane.api.app import create_app
from learnloop_dataplane.config import Config
from reference.markdown import code, outside_code, page, table

_VERBS = ("get", "put", "post", "patch", "delete")


def pages() -> Iterator[tuple[str, str]]:
    """The one page of REST operations. Nothing is connected to: the document needs no database."""
    document = create_app(Config(dsn="postgresql://none@127.0.0.1/none", artifacts="file:///nowhere")).openapi()  # type: ignore[arg-type]
    schemas = document["components"]["schemas"]
    parts = [
        "A running data plane serves this as an OpenAPI document at `/openapi.json`. Callers send a service-account "
        "token as `Authorization: Bearer …`; the token's namespace is the caller's namespace."
    ]
    for path, item in sorted(document["paths"].items()):
        for verb in _VERBS:
            if verb in item:
                parts += _operation(verb, path, item[verb], schemas)
    yield "rest.md", page("REST", "the data plane's OpenAPI document", *parts)


def _operation(verb: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> list[str]:
    parts = [f"## `{verb.upper()} {path}`", outside_code(operation.get("description") or operation.get("summary", ""))]
    parameters = [
        (code(item["name"]), item["in"], _type(item.get("schema", {})), str(item.get("description", "")))
        for item in operation.get("parameters", [])
        if item["in"] != "header" or item["name"].lower() != "authorization"
    ]
    if parameters:
        parts.append(table(("parameter", "in", "type", "meaning"), parameters))
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content.get("schema", {})
        parts.append(f"Body (`{kind}`):")
        parts.append(_body(_resolved(schema, schemas), schemas) or "raw bytes")
    answers = ", ".join(
        f"{status} {item.get('description', '')}".strip() for status, item in operation["responses"].items()
    )
    return [*parts, f"Answers: {outside_code(answers)}."]


def _body(schema: dict[str, Any], schemas: dict[str, Any]) -> str:
    required = set(schema.get("required", []))
    rows = []
    for name, field in schema.get("properties", {}).items():
        default = "**required**" if name in required else code(field["default"]) if "default" in field else ""
        rows.append((code(name), _type(field), default, str(_resolved(field, schemas).get("description", ""))))
    return table(("field", "type", "default", "meaning"), rows) if rows else ""


def _resolved(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref", "")
    return schemas.get(reference.rsplit("/", 1)[-1], schema) if reference else schema


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(item) for item in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(
        schema.get("format") or schema.get("type") or ("one of " + str(schema["enum"]) if "enum" in schema else "any")
    )
