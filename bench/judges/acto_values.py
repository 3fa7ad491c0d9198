"""Values for every field of a CRD's spec, after Acto's generators: valid, boundary, invalid, and of a known meaning."""

import copy
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
Path = tuple[str | int, ...]
MISSING = object()
ITEM, KEY = 0, "acto"
TEXTS = (
    "acto", "acto-2", "7", "10", "5Gi", "7Gi", "64Mi", "500m", "30m", "48h", "0 4 * * *", "*/10 * * * *", "0.25",
    "https://acto.example/one", "http://acto.example:8080", "acto.example:50051", "https://acto.example/v1/two",
    "acto/one", "acto.one", "acto_one", "metadata.acto", "a" * 64, "5" * 64, "Acto-v1", "acto:Task", "english",
    "german", "pvc://acto/one", "registry.example/acto:1", "uniform://discrete/2?observations=4", "default/acto",
    "alice@example.com", "acto.example", "GPU", "cpu", "2026-11-29T00:00:00Z", "sum(acto)", "vector(1)",
)  # fmt: skip
"""Texts of the forms that specs have: a field's pattern picks the first two that it takes."""
INVALID_TEXT = "INVALID VALUE!\n"
MEANINGS: Mapping[str, Sequence[Any]] = {
    "image": ["INVALID IMAGE", "registry.example/none:404"],
    "serviceAccountName": ["INVALID_SERVICE_ACCOUNT_NAME", "default"],
    "priorityClassName": ["INVALID_PRIORITY_CLASS_NAME", "system-cluster-critical"],
    "schedulerName": ["no-such-scheduler"],
    "name": ["INVALID_NAME"],
    "requests": [{"cpu": "-1"}, {"cpu": "0"}, {"memory": "1e30"}, {"cpu": "99999"}, {"not a resource": "1"}],
    "limits": [{"cpu": "1m"}, {"memory": "1"}, {"cpu": "-1"}, {"hugepages-3Mi": "1Mi"}],
    "nodeSelector": [{"kubernetes.io/hostname": "NULL"}, {"not a key!": "x"}],
    "labels": [{"not a key!": "x"}, {"acto": "not a value!"}, {"learnloop.dev/revision": "mine"}],
    "annotations": [{"not a key!": "x"}, {"acto": "anything\n at all"}],
    "tolerations": [
        [{"key": "test-key", "operator": "Equal", "value": "test-value", "effect": "NoExecute"}],
        [{"key": "test-key", "operator": "Equal", "value": "test-value", "effect": "INVALID_EFFECT"}],
    ],
    "affinity": [
        {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"acto": "one"}}, "topologyKey": "kubernetes.io/hostname"}]}},
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["NULL"]}]}]}}},
        {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]}},
    ],
    "topologySpreadConstraints": [
        [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        [{"topologyKey": "INVALID_TOPOLOGY_KEY"}],
    ],
    "volumes": [[{"name": "acto", "emptyDir": {}}], [{"name": "acto", "secret": {}}], [{"name": "INVALID_NAME"}]],
    "volumeMounts": [[{"name": "missing", "mountPath": "/acto"}]],
    "env": [[{"name": "ACTO", "value": "1"}], [{"name": "NOT A NAME", "value": "1"}], [{"name": "A", "valueFrom": {}}]],
    "valueFrom": [{"fieldRef": {"fieldPath": "metadata.name"}}, {"fieldRef": {"fieldPath": "no.such.path"}}],
    "claims": [[{"name": "missing"}]],
    "resourceClaims": [[{"name": "acto", "resourceClaimName": "missing"}], [{"name": "acto"}]],
    "schedule": ["@yearly", "61 * * * *", "0 0 31 2 *"],
    "url": ["http://127.0.0.1:1", "ftp://acto.example"],
    "uri": ["https://127.0.0.1:1/none.onnx", "file:///etc/passwd"],
    "query": ["not promql (", "vector(1)"],
    "storageClassName": ["no-such-class"],
    "size": ["1Mi", "999999Ti"],
}  # fmt: skip
"""Values by a field's name: of Kubernetes' fields as Acto generates them, and of ours."""


@dataclass(frozen=True, slots=True)
class Case:
    """One change of one field. `kind`: valid, boundary, invalid or meaning; `value`: MISSING deletes the field."""

    path: Path
    kind: str
    value: Any

    @property
    def field(self) -> str:
        """The field, wherever in lists and maps it stands."""
        return ".".join("[]" if isinstance(part, int) else part for part in self.path)

    def __str__(self) -> str:
        value = "left out" if self.value is MISSING else json.dumps(self.value)
        return f"{self.field}: {self.kind} {value[:160]}"


def fields(schema: Schema, path: Path = ()) -> Iterator[tuple[Path, Schema]]:
    """Every field beneath a schema, at the first item of a list and at one key of a map."""
    below = [(name, item) for name, item in schema.get("properties", {}).items()]
    if isinstance(schema.get("additionalProperties"), dict):
        below.append((KEY, schema["additionalProperties"]))
    if "items" in schema:
        below.append((ITEM, schema["items"]))
    for part, item in below:
        yield (*path, part), item
        yield from fields(item, (*path, part))


def cases(schema: Schema, spec: Any, draw: random.Random) -> list[Case]:
    """All cases of a CRD's spec, from this one on: each field's first valid one comes first, in an order by chance."""
    first, rest = list[Case](), list[Case]()
    for path, item in fields(schema):
        made = [Case(path, kind, value) for kind, value in _values(item, path, get(spec, path))]
        unique = {f"{case}": case for case in made}
        (head, *tail) = unique.values()
        first.append(head)
        rest += tail
    draw.shuffle(first)
    draw.shuffle(rest)
    return first + rest


def get(value: Any, path: Path) -> Any:
    """The value at a path, or MISSING."""
    for part in path:
        there = isinstance(value, dict | list)
        try:
            value = value[part] if there else MISSING
        except (KeyError, IndexError):
            value = MISSING
    return value


def changed(schema: Schema, spec: Any, case: Case) -> Any:
    """The spec with that value; what is missing above it is made, as small as the schema allows."""
    made = copy.deepcopy(spec)
    _put(schema, made, case.path, case.value)
    return made


def _put(schema: Schema, value: Any, path: Path, new: Any) -> None:
    part, below = path[0], _below(schema, path[0])
    there = get(value, (part,))
    if len(path) > 1:
        if there is MISSING:
            there = _smallest(below)
            _set(value, part, there)
        if isinstance(there, dict | list):
            _put(below, there, path[1:], new)
    elif new is not MISSING:
        _set(value, part, new)
    elif there is not MISSING:
        del value[part]


def _set(value: Any, part: str | int, new: Any) -> None:
    if isinstance(value, list) and part == len(value):
        value.append(new)
    else:
        value[part] = new


def _below(schema: Schema, part: str | int) -> Schema:
    if isinstance(part, int):
        return dict(schema["items"])
    return dict(schema.get("properties", {}).get(part) or schema["additionalProperties"])


def _smallest(schema: Schema) -> Any:
    if "default" in schema:
        return copy.deepcopy(schema["default"])
    if schema.get("type") == "object":
        return {name: _smallest(schema["properties"][name]) for name in schema.get("required", ())}
    if schema.get("type") == "array":
        return [_smallest(schema["items"]) for _ in range(schema.get("minItems", 0))]
    return next((value for _, value in _scalars(schema, MISSING)), KEY)


def _values(schema: Schema, path: Path, now: Any) -> Iterator[tuple[str, Any]]:
    """(kind, value): the first is valid where the schema alone decides."""
    if schema.get("type") == "array":
        yield from _lists(schema, now)
    elif schema.get("type") == "object" or "properties" in schema:
        yield from _objects(schema, now)
    else:
        yield from _scalars(schema, now)
    if now is not MISSING and isinstance(path[-1], str):
        yield "valid", MISSING
    yield from (("meaning", value) for value in MEANINGS.get(str(path[-1]), ()))
    yield "invalid", 7 if schema.get("type") in ("string", "object", "array", "boolean") else INVALID_TEXT


def _scalars(schema: Schema, now: Any) -> Iterator[tuple[str, Any]]:
    if "enum" in schema:
        yield from (("valid", value) for value in schema["enum"] if value != now)
        yield "invalid", INVALID_TEXT
    elif schema.get("type") == "boolean":
        yield from (("valid", value) for value in (True, False) if value is not now)
    elif schema.get("type") in ("integer", "number"):
        low, high = schema.get("minimum", -(2**31)), schema.get("maximum", 2**31 - 1)
        base = now if isinstance(now, int | float) else schema.get("default", schema.get("minimum", 1))
        step = 1 if schema["type"] == "integer" else 0.125
        near = [value for value in (base + step, base - step, base * 2) if low <= value <= high and value != now]
        yield from (("valid", value) for value in near)
        yield from (("boundary", value) for value in (low, high) if value != now)
        yield from (("invalid", value) for value in (low - 1, high + 1))
    else:
        yield from _texts(schema, now)


def _texts(schema: Schema, now: Any) -> Iterator[tuple[str, Any]]:
    rules = [rule["rule"] for rule in schema.get("x-kubernetes-validations", ())]
    matches = [re.search(r"self\.matches\('(.*?)'\)", rule) for rule in rules]
    patterns = [match[1].replace("\\\\", "\\") for match in matches if match] + [schema.get("pattern", "")]
    least, most = schema.get("minLength", 0), schema.get("maxLength", 256)
    examples = re.findall(r"e\.g\. ([^\s,;]+)", json.dumps(schema))
    texts = ([f"{now}x", f"{now}1"] if isinstance(now, str) else []) + list(TEXTS) + examples
    fit = [text for text in texts if least <= len(text) <= most and all(re.search(it, text) for it in patterns)]
    yield from (("valid", text) for text in [text for text in fit if text != now][:2])
    yield from (("boundary", letter * most) for letter in "a1" if all(re.search(it, letter * most) for it in patterns))
    yield from (("invalid", text) for text in ("a" * (most + 1), INVALID_TEXT, ""))


def _lists(schema: Schema, now: Any) -> Iterator[tuple[str, Any]]:
    items = now if isinstance(now, list) else []
    more = _smallest(schema["items"])
    if len(items) < schema.get("maxItems", 64):
        yield "valid", [*items, more]
    if len(items) > schema.get("minItems", 0):
        yield "valid", items[:-1]
        yield "boundary", items[: schema.get("minItems", 0)]
    yield "boundary", [_numbered(more, number) for number in range(min(schema.get("maxItems", 8), 64))]
    yield "invalid", [_numbered(more, number) for number in range(schema.get("maxItems", 64) + 1)]


def _numbered(item: Any, number: int) -> Any:
    if isinstance(item, dict) and isinstance(item.get("name"), str):
        return {**item, "name": f"{item['name']}{number}"}
    return f"{item}{number}" if isinstance(item, str) else item


def _objects(schema: Schema, now: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(now, dict) and now:
        yield "valid", {}
    else:
        yield "valid", _smallest(schema)
    if isinstance(schema.get("additionalProperties"), dict):
        value = _smallest(schema["additionalProperties"])
        yield "valid", {**(now if isinstance(now, dict) else {}), KEY: value}
        yield "invalid", {f"{KEY}{number}": value for number in range(schema.get("maxProperties", 256) + 1)}
    elif not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield "invalid", {**(now if isinstance(now, dict) else {}), "noSuchField": 1}
