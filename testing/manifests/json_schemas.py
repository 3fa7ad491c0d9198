"""JSON Schemas of Kubernetes objects, as strict as an API server: a field that a kind does not have is refused.

They are made of what is published: the OpenAPI documents of Kubernetes, and the definitions of custom kinds.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Schema = dict[str, Any]
PREFIX = "#/components/schemas/"
METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
SILENT = {"description", "default", "example", "externalDocs", "title"}
"""What a schema says to people. It is left out: files become small, and a property of that name stays."""
BY_NAME = ("properties", "patternProperties", "definitions")
LOGICAL = ("allOf", "anyOf", "oneOf", "not")


class Kind(NamedTuple):
    """What `apiVersion` and `kind` of an object say; `group` is "" for v1."""

    group: str
    version: str
    kind: str


def of_kubernetes(document: Mapping[str, Any]) -> Iterator[tuple[Kind, Schema]]:
    """Each kind of one file of Kubernetes' `api/openapi-spec/v3`, with all that its schema refers to."""
    known = {name: _closed(schema) for name, schema in document["components"]["schemas"].items()}
    for name, schema in document["components"]["schemas"].items():
        for said in schema.get("x-kubernetes-group-version-kind", ()):
            kind = Kind(said["group"], said["version"], said["kind"])
            properties = set(schema.get("properties", ()))
            if {"apiVersion", "kind", "metadata"} <= properties:
                yield kind, _document(known[name], known)


def of_definition(definition: Mapping[str, Any], core: Mapping[str, Any]) -> Iterator[tuple[Kind, Schema]]:
    """Each served version of a CustomResourceDefinition.

    Args:
        definition: apiextensions.k8s.io/v1 CustomResourceDefinition.
        core: Kubernetes' OpenAPI document of v1, which says what metadata may hold.
    """
    known = {name: _closed(schema) for name, schema in core["components"]["schemas"].items()}
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["served"]:
            schema = _closed(version["schema"]["openAPIV3Schema"])
            if schema.get("additionalProperties", False) is False:
                text = {"type": "string"}
                said = {"apiVersion": text, "kind": text, "metadata": {"$ref": PREFIX + METADATA}}
                schema = {**schema, "properties": {**schema.get("properties", {}), **said}}
            yield Kind(spec["group"], version["name"], spec["names"]["kind"]), _document(schema, known)


def _document(schema: Schema, known: Mapping[str, Schema]) -> Schema:
    """The schema with those that it refers to, and no others."""
    found: dict[str, Schema] = {}
    waiting = list(_references(schema))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = known[name]
            waiting += _references(known[name])
    return {**schema, "components": {"schemas": found}}


def _references(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if isinstance(said := tree.get("$ref"), str):
            yield said.removeprefix(PREFIX)
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
    for word, said in schema.items():
        if word in BY_NAME:
            result[word] = {name: _closed(item, constraint=constraint) for name, item in said.items()}
        elif word in ("items", "additionalProperties") and isinstance(said, dict):
            result[word] = _closed(said, constraint=constraint)
        elif word == "not":
            result[word] = _closed(said, constraint=True)
        elif word in LOGICAL:
            result[word] = [_closed(item, constraint=True) for item in said]
        elif word not in SILENT and not word.startswith("x-kubernetes-") and word != "nullable":
            result[word] = said
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
