"""JSON Schemas of Kubernetes objects, as strict as an API server: a field that a kind does not have is refused.

They are made of what is published: the OpenAPI documents of Kubernetes, and the definitions of custom kinds.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Schema = dict[str, Any]
PREFIX = "#/components/schemas/"
METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
SILENT = {"description", "default", "example", "externalDocs", "title"}
"""A schema's text for people. It is left out: files become small, and a property of that name stays."""
BY_NAME = ("properties", "patternProperties", "definitions")
LOGICAL = ("allOf", "anyOf", "oneOf", "not")


class Kind(NamedTuple):
    """`apiVersion` and `kind` of an object; `group` is "" for v1."""

    group: str
    version: str
    kind: str


def of_kubernetes(document: Mapping[str, Any]) -> Iterator[tuple[Kind, Schema]]:
    """Each kind of one file of Kubernetes' `api/openapi-spec/v3`, with all that its schema refers to."""
    schemas = {name: _closed(schema) for name, schema in document["components"]["schemas"].items()}
    for name, schema in document["components"]["schemas"].items():
        for group_kind in schema.get("x-kubernetes-group-version-kind", ()):
            kind = Kind(group_kind["group"], group_kind["version"], group_kind["kind"])
            properties = set(schema.get("properties", ()))
            if {"apiVersion", "kind", "metadata"} <= properties:
                yield kind, _document(schemas[name], schemas)


def of_definition(definition: Mapping[str, Any], core: Mapping[str, Any]) -> Iterator[tuple[Kind, Schema]]:
    """Each served version of a CustomResourceDefinition.

    Args:
        definition: apiextensions.k8s.io/v1 CustomResourceDefinition.
        core: Kubernetes' OpenAPI document of v1, which says what metadata may hold.
    """
    schemas = {name: _closed(schema) for name, schema in core["components"]["schemas"].items()}
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["served"]:
            schema = _closed(version["schema"]["openAPIV3Schema"])
            if schema.get("additionalProperties", False) is False:
                text = {"type": "string"}
                properties = {"apiVersion": text, "kind": text, "metadata": {"$ref": PREFIX + METADATA}}
                schema = {**schema, "properties": {**schema.get("properties", {}), **properties}}
            yield Kind(spec["group"], version["name"], spec["names"]["kind"]), _document(schema, schemas)


def _document(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """The schema with those that it refers to, and no others."""
    referred: dict[str, Schema] = {}
    waiting = list(_references(schema))
    while waiting:
        name = waiting.pop()
        if name not in referred:
            referred[name] = schemas[name]
            waiting += _references(schemas[name])
    return {**schema, "components": {"schemas": referred}}


def _references(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if isinstance(reference := tree.get("$ref"), str):
            yield reference.removeprefix(PREFIX)
        for item in tree.values():
            yield from _references(item)
    elif isinstance(tree, list):
        for item in tree:
            yield from _references(item)


def _closed(schema: Schema, *, constraint: bool = False) -> Schema:
    """The schema with no place for unknown fields, unless it makes one.

    `constraint`: it stands below a logical word of a structural schema, and says only what holds for known fields.
    """
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    result: Schema = {}
    for word, entry in schema.items():
        if word in BY_NAME:
            result[word] = {name: _closed(item, constraint=constraint) for name, item in entry.items()}
        elif word in ("items", "additionalProperties") and isinstance(entry, dict):
            result[word] = _closed(entry, constraint=constraint)
        elif word == "not":
            result[word] = _closed(entry, constraint=True)
        elif word in LOGICAL:
            result[word] = [_closed(item, constraint=True) for item in entry]
        elif word not in SILENT and not word.startswith("x-kubernetes-") and word != "nullable":
            result[word] = entry
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if "properties" in schema and not open_ended and not constraint:
        result["additionalProperties"] = False
    if schema.get("nullable") and isinstance(kind := result.get("type"), str):
        result["type"] = [kind, "null"]
        if "enum" in result:
            result["enum"] = [*result["enum"], None]
    if schema.get("x-kubernetes-embedded-resource"):
        result.pop("additionalProperties", None)
    return result
