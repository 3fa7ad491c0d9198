"""CustomResourceDefinitions as documents and as YAML files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from learnloop_api.crd.printer_columns import KINDS, Kind
from learnloop_api.kinds.base import PATTERN_MESSAGE, RULES, Resource, Rule
from learnloop_api.names import CATEGORY, GROUP, VERSION

Schema = dict[str, Any]

INT32 = 2**31
OPAQUE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
EMBEDDED = "embedded"
"""Marks a field that repeats the spec of another kind: that kind describes the fields, once."""
# Keywords that mean the same in both worlds, in the order they are written.
SAME = ("enum", "format", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties")
SCALARS = ("string", "integer", "number", "boolean")


def spec_schema(model: type[Resource]) -> Schema:
    """Schema of what a user writes: with defaults, and with rules that explain themselves.

    Raises ValueError, naming the place, for what a structural schema cannot say.
    """
    return _schema(model, for_users=True)


def status_schema(model: type[Resource]) -> Schema:
    """Schema of what the operator writes. It says everything itself: no defaults, no rules, plain patterns.

    Raises ValueError as `spec_schema` does.
    """
    return _schema(model, for_users=False)


def _schema(model: type[Resource], for_users: bool) -> Schema:
    source = model.model_json_schema(by_alias=True)
    return _Converter(source.get("$defs", {}), for_users).convert(source, model.__name__)


@dataclass(frozen=True)
class _Converter:
    definitions: Mapping[str, Schema]
    for_users: bool
    describes: bool = True

    def convert(self, source: Schema, path: str) -> Schema:
        source = self._resolve(source)
        result: Schema = {}
        if self.describes and (text := source.get("description")):
            result["description"] = _prose(text)
        if "anyOf" in source:
            return result | self._int_or_string(source, path)
        kind = source.get("type")
        if kind not in (*SCALARS, "array", "object"):
            raise ValueError(f"{path}: a structural schema needs one plain type here, not {kind!r}")
        result["type"] = kind
        if self.for_users and source.get("default") is not None:
            result["default"] = source["default"]
        result |= _bounds(source)
        if kind == "object":
            result |= self._object(source, path)
        elif kind == "array":
            result |= self._array(source, path)
        elif "pattern" in source:
            result |= self._pattern(source)
        if self.for_users and RULES in source:
            result[RULES] = result.get(RULES, []) + source[RULES]
        return result

    def _resolve(self, source: Schema) -> Schema:
        """Without references and `| None`. Keys next to a reference override its target's; validation rules add up."""
        while True:
            options = [option for option in source.get("anyOf", ()) if option.get("type") != "null"]
            if "$ref" in source:
                target = self.definitions[source["$ref"].removeprefix("#/$defs/")]
            elif len(options) == 1:
                target = options[0]
            else:
                return source
            rules = [*target.get(RULES, ()), *source.get(RULES, ())]
            source = target | {key: value for key, value in source.items() if key not in ("$ref", "anyOf")}
            source |= {RULES: rules} if rules else {}

    def _object(self, source: Schema, path: str) -> Schema:
        values = source.get("additionalProperties")
        if values is True:
            fields = {key: self._field(field, f"{path}.{key}") for key, field in source.get("properties", {}).items()}
            return {OPAQUE: True} | ({"properties": fields} if fields else {})
        if values:
            return {"additionalProperties": self.convert(values, f"{path}.*")}
        fields = source.get("properties", {})
        result: Schema = {"properties": {key: self._field(field, f"{path}.{key}") for key, field in fields.items()}}
        if required := source.get("required"):
            result["required"] = required
        return result

    def _field(self, source: Schema, path: str) -> Schema:
        if not source.get(EMBEDDED):
            return self.convert(source, path)
        return {"description": _prose(source["description"])} | replace(self, describes=False).convert(source, path)

    def _array(self, source: Schema, path: str) -> Schema:
        result: Schema = {"items": self.convert(source["items"], f"{path}[]")}
        # A list without keys has one owner: two appliers would silently interleave its items.
        result["x-kubernetes-list-type"] = source.get("listType", "atomic")
        if keys := source.get("listMapKeys"):
            result["x-kubernetes-list-map-keys"] = keys
        return result

    def _pattern(self, source: Schema, applies: str = "") -> Schema:
        """A pattern, or the sentence that explains it: with both, the API server would print the pattern as well."""
        message = source.get(PATTERN_MESSAGE)
        if not (self.for_users and message):
            return {"pattern": source["pattern"]}
        escaped = source["pattern"].replace("\\", "\\\\").replace("'", "\\'")
        return {RULES: [Rule(f"{applies}self.matches('{escaped}')", message).to_schema()]}

    def _int_or_string(self, source: Schema, path: str) -> Schema:
        options = {option.get("type"): option for option in source["anyOf"] if option.get("type") != "null"}
        if options.keys() != {"integer", "string"}:
            raise ValueError(f"{path}: the only union a structural schema has is int | str")
        text = options["string"]
        result: Schema = {INT_OR_STRING: True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
        if "maxLength" in text:
            result["maxLength"] = text["maxLength"]
        return result | (self._pattern(text, applies="type(self) == int || ") if "pattern" in text else {})


def _bounds(source: Schema) -> Schema:
    """Enums, formats and limits; OpenAPI 3.0 marks an exclusive bound with a separate flag."""
    result = {key: source[key] for key in SAME if key in source}
    if "const" in source:
        result["enum"] = [source["const"]]
    for word in ("minimum", "maximum"):
        exclusive = f"exclusive{word.capitalize()}"
        if exclusive in source:
            result |= {word: source[exclusive], exclusive: True}
    if source.get("type") == "integer":
        small = source.get("minimum", -INT32 - 1) >= -INT32 and source.get("maximum", INT32) < INT32
        result["format"] = "int32" if small else "int64"
    if source.get("type") == "number":
        result["format"] = "double"
    return result


def _prose(text: str) -> str:
    """Put each paragraph on one line: the reader's tool breaks the lines."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


STANDARD_TEXTS = {
    "apiVersion": "Versioned schema of this object: learnloop.dev/v1alpha1.",
    "kind": "Name of the resource this object is.",
}


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind. Nothing in it depends on where or when it is made."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": [kind.short_name],
                "categories": [CATEGORY],
            },
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> dict[str, Any]:
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": _subresources(kind),
        "additionalPrinterColumns": [column.to_crd() for column in kind.columns],
        "schema": {"openAPIV3Schema": _root(kind)},
    }
    if kind.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return version


def _subresources(kind: Kind) -> dict[str, Any]:
    if kind.scale is None:
        return {"status": {}}
    scale = {
        "specReplicasPath": kind.scale,
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return {"status": {}, "scale": scale}


def _root(kind: Kind) -> Schema:
    name_rules = [
        Rule(
            f"self.metadata.name.size() <= {kind.name_limit}",
            f"must have at most {kind.name_limit} characters: objects named after it need the rest",
            ".metadata.name",
        ),
        Rule(
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "must be lower-case letters, digits and '-', start with a letter and end with a letter or "
            "digit: Services are named after it",
            ".metadata.name",
        ),
    ]
    return {
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            **{name: {"description": text, "type": "string"} for name, text in STANDARD_TEXTS.items()},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": spec_schema(kind.spec),
            "status": status_schema(kind.status),
        },
        RULES: [rule.to_schema() for rule in name_rules],
    }


HEADER = "# Made from learnloop_api by `make crds`. Change the models, not this file.\n"


class _Dumper(yaml.SafeDumper):
    """Writes equal parts out in full: Kubernetes tools refuse or mangle YAML anchors."""

    def ignore_aliases(self, data: object) -> bool:
        return True


@cache
def render(kind: Kind) -> str:
    """The CustomResourceDefinition of a kind as YAML."""
    body = yaml.dump(definition(kind), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return HEADER + str(body)


def write(folder: Path) -> list[Path]:
    """Write every kind's file into `folder`; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        _path(folder, kind).write_text(render(kind), encoding="utf-8")
    return [_path(folder, kind) for kind in KINDS]


def stale(folder: Path) -> list[Path]:
    """Files that are missing, differ from the models, or belong to no kind."""
    wanted = {_path(folder, kind): render(kind) for kind in KINDS}
    fields = {path: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}
    return sorted(path for path in wanted.keys() | fields.keys() if wanted.get(path) != fields.get(path))


def _path(folder: Path, kind: Kind) -> Path:
    return folder / f"{kind.plural}.yaml"
