"""Objects as an API server keeps them: versions, watches, server-side apply, and children that go with their owners.

One writer at a time, in memory. It knows no admission but the kinds' own models and rules.
"""

import asyncio
import base64
import copy
import difflib
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError

from learnloop_api.crd.definition import spec_schema
from learnloop_api.crd.printer_columns import KINDS
from learnloop_local import rules
from learnloop_operator.kube import kinds

Object = dict[str, Any]
REMEMBERED = 5_000
"""Changes that a watch can still be given; one that asks for older ones has to list again."""
ABSENT = (kinds.PYTORCH_JOB, kinds.TRAIN_JOB, kinds.WORKLOAD, kinds.HTTP_ROUTE, kinds.NETWORK_POLICY)
CLUSTER_WIDE = (
    kinds.ResourceKind("", "v1", "namespaces", "Namespace"),
    kinds.ResourceKind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
)
"""Kinds that Kopf watches before it watches any other; there are none here."""
SERVED = {(kind.api_version, kind.plural): kind for kind in (*kinds.ALL_KINDS, *CLUSTER_WIDE) if kind not in ABSENT}
IN_WORDS_OF_RULES = ("value_error", "string_pattern_mismatch")
"""Errors of a model that the CRDs' rules say better."""
SPECS = {kind.plural: kind.spec for kind in KINDS}


class Refused(Exception):
    """A request that is not carried out, with the status of its answer."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


@dataclass(frozen=True, slots=True)
class Change:
    version: int
    kind: kinds.ResourceKind
    type: str
    object: Object


class Store:
    """`changed` is called after each write."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._objects: dict[kinds.ResourceKind, dict[tuple[str, str], Object]] = {kind: {} for kind in SERVED.values()}
        self._applied: dict[tuple[kinds.ResourceKind, str, str, str], Object] = {}
        self._changes: deque[Change] = deque(maxlen=REMEMBERED)
        self._news = asyncio.Event()
        self._changed, self.version = changed, 1

    def find(self, kind: kinds.ResourceKind, namespace: str, name: str) -> Object | None:
        return copy.deepcopy(self._objects[kind].get((namespace, name)))

    def get(self, kind: kinds.ResourceKind, namespace: str, name: str) -> Object:
        body = self.find(kind, namespace, name)
        if body is None:
            raise Refused(404, "NotFound", f'{kind.plural} "{name}" not found')
        return body

    def every(
        self, kind: kinds.ResourceKind, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> list[Object]:
        items = (self._objects[kind][key] for key in sorted(self._objects[kind]))
        return [copy.deepcopy(item) for item in items if matches(item, namespace, labels, fields)]

    def create(self, kind: kinds.ResourceKind, namespace: str, body: Object) -> Object:
        name = str(body.get("metadata", {}).get("name") or "")
        if not name:
            raise Refused(422, "Invalid", "metadata.name: '': give the object a name")
        if (namespace, name) in self._objects[kind]:
            raise Refused(409, "AlreadyExists", f'{kind.plural} "{name}" already exists')
        return self._put(kind, namespace, name, None, body)

    def replace(self, kind: kinds.ResourceKind, namespace: str, name: str, body: Object, part: str = "") -> Object:
        live = self.get(kind, namespace, name)
        _require_same(live, body.get("metadata") or {})
        return self._put(kind, namespace, name, live, body, part)

    def merge(self, kind: kinds.ResourceKind, namespace: str, name: str, patch: Object, part: str = "") -> Object:
        """A JSON merge patch (RFC 7396)."""
        live = self.get(kind, namespace, name)
        _require_same(live, patch.get("metadata") or {})
        return self._put(kind, namespace, name, live, merged(live, patch), part)

    def apply(
        self, kind: kinds.ResourceKind, namespace: str, name: str, body: Object, manager: str, part: str = ""
    ) -> Object:
        """Server-side apply with force: what this manager applied before and leaves out now is removed."""
        live = self.find(kind, namespace, name)
        wanted = copy.deepcopy(body)
        precondition = wanted.setdefault("metadata", {})
        if live is None and precondition.get("resourceVersion"):
            raise Refused(409, "Conflict", f'{kind.plural} "{name}" was deleted since it was read')
        _require_same(live or {"metadata": {}}, precondition)
        for field in ("uid", "resourceVersion"):
            precondition.pop(field, None)
        key = (kind, namespace, name, f"{manager}/{part}")
        base = _without(live, self._applied.get(key, {}), wanted) if live is not None else {}
        result = self._put(kind, namespace, name, live, merged(base, wanted), part)
        self._applied[key] = wanted
        return result

    def status(self, kind: kinds.ResourceKind, body: Object, status: Object) -> None:
        """Write a status as the object's own controller does; nothing where it is gone or says the same."""
        metadata = body["metadata"]
        if (live := self.find(kind, metadata["namespace"], metadata["name"])) and live.get("status") != status:
            self._put(kind, metadata["namespace"], metadata["name"], live, {**live, "status": status}, "status")

    def delete(self, kind: kinds.ResourceKind, namespace: str, name: str, expected: Mapping[str, Any]) -> Object:
        """A pod is only marked: its process ends first. Children go with their owner."""
        live = self.get(kind, namespace, name)
        _require_same(live, expected)
        if kind is kinds.POD and "deletionTimestamp" not in live["metadata"]:
            live["metadata"]["deletionTimestamp"] = now()
            self._write(kind, namespace, name, live, "MODIFIED")
        elif kind is not kinds.POD:
            self.remove(kind, namespace, name)
        return live

    def remove(self, kind: kinds.ResourceKind, namespace: str, name: str) -> None:
        live = self._objects[kind].pop((namespace, name), None)
        if live is None:
            return
        for key in [key for key in self._applied if key[:3] == (kind, namespace, name)]:
            del self._applied[key]
        self._write(kind, namespace, name, live, "DELETED")
        for other, children in self._objects.items():
            for (place, child), body in list(children.items()):
                owners = body["metadata"].get("ownerReferences") or ()
                if any(owner.get("uid") == live["metadata"]["uid"] for owner in owners):
                    self.delete(other, place, child, {})

    async def changes(self, kind: kinds.ResourceKind, since: int) -> tuple[int, list[Change]] | None:
        """Changes after `since` up to a version, as soon as there are any. None: they are forgotten."""
        while self.version <= since:
            await self._news.wait()
        if self._changes and self._changes[0].version > since + 1 and len(self._changes) == REMEMBERED:
            return None
        return self.version, [change for change in self._changes if change.version > since and change.kind is kind]

    def _put(
        self,
        kind: kinds.ResourceKind,
        namespace: str,
        name: str,
        live: Object | None,
        body: Object,
        part: str = "",
    ) -> Object:
        if part == "status":
            assert live is not None, "a status belongs to an object"
            body = {**live, "status": body.get("status")}
        else:
            body = {**body, **({"status": live["status"]} if live and "status" in live else {})}
            if live is None or "status" not in live:
                body.pop("status", None)
            _check(kind, name, body, live)
        if text := body.pop("stringData", None):  # of a Secret
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in text.items()}
            body["data"] = {**(body.get("data") or {}), **encoded}
        before = (live or {}).get("metadata") or {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
        metadata = {**body.get("metadata", {}), "name": name, "namespace": namespace}
        metadata |= {field: before[field] for field in ("uid", "creationTimestamp")}
        same_spec = live is not None and live.get("spec") == body.get("spec")
        metadata["generation"] = before.get("generation", 0) + (0 if same_spec else 1)
        metadata["resourceVersion"] = before.get("resourceVersion", "")
        result = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        if result == live:
            return copy.deepcopy(live)
        return self._write(kind, namespace, name, result, "ADDED" if live is None else "MODIFIED")

    def _write(self, kind: kinds.ResourceKind, namespace: str, name: str, body: Object, type_: str) -> Object:
        self.version += 1
        body = copy.deepcopy(body)
        body["metadata"]["resourceVersion"] = str(self.version)
        if type_ != "DELETED":
            self._objects[kind][namespace, name] = body
        self._changes.append(Change(self.version, kind, type_, body))
        self._news.set()
        self._news = asyncio.Event()
        self._changed()
        return copy.deepcopy(body)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def matches(item: Mapping[str, Any], namespace: str | None, labels: str, fields: str) -> bool:
    """Whether a list or watch with these selectors (equality, or presence of a label) shows the object."""
    metadata = item["metadata"]
    marks = metadata.get("labels") or {}
    return (
        (namespace is None or metadata["namespace"] == namespace)
        and all(_chosen(marks, term) for term in labels.split(",") if term)
        and all(_dig(item, key.split(".")) == value for key, value in _pairs(fields))
    )


def _chosen(marks: Mapping[str, str], term: str) -> bool:
    if "!=" in term:
        key, _, value = term.partition("!=")
        return marks.get(key) != value
    key, equals, value = term.replace("==", "=").partition("=")
    return marks.get(key) == value if equals else (key in marks) != key.startswith("!")


def _pairs(terms: str) -> Iterable[tuple[str, str]]:
    return (
        (key, value) for key, _, value in (term.replace("==", "=").partition("=") for term in terms.split(",") if term)
    )


def _dig(value: Any, path: Iterable[str]) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def merged(live: Any, patch: Any) -> Any:
    """`live` with `patch` over it: null removes, lists are replaced."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(live) if isinstance(live, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _without(live: Any, before: Mapping[str, Any], wanted: Mapping[str, Any]) -> Any:
    """`live` without the fields of `before` that `wanted` leaves out."""
    result = dict(live)
    for key, value in before.items():
        if key not in wanted:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(wanted[key], Mapping) and isinstance(result.get(key), Mapping):
            result[key] = _without(result[key], value, wanted[key])
    return result


def _require_same(live: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for field in ("uid", "resourceVersion"):
        if expected.get(field) and live["metadata"].get(field) != expected[field]:
            raise Refused(
                409, "Conflict", f"metadata.{field}: {expected[field]}: the object has changed, read it again"
            )


def _check(kind: kinds.ResourceKind, name: str, body: Object, live: Object | None) -> None:
    model, schema, spec = SPECS.get(kind.plural), rules.schema_of(kind.plural), body.get("spec") or {}
    if model is None or schema is None or (live is not None and live.get("spec") == spec):
        return
    if "spec" not in body:
        raise Refused(422, "Invalid", f"{kind.kind} {name}: spec: Required value")
    whole = rules.defaulted(schema, {"metadata": {**body.get("metadata", {}), "name": name}, "spec": spec})
    before = live and rules.defaulted(schema, {"metadata": live["metadata"], "spec": live["spec"]})
    try:
        model.model_validate(spec)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(str(part) for part in ("spec", *first["loc"]))
        text = f"{path}: {str(first['input'])[:200]}: {first['msg'].removeprefix('Value error, ')}"
        if first["type"] in IN_WORDS_OF_RULES:
            text = next(rules.broken(schema, whole, before), text)
        raise Refused(422, "Invalid", f"{kind.kind} {name}: {text}") from error
    for sentence in rules.broken(schema, whole, before):
        raise Refused(422, "Invalid", f"{kind.kind} {name}: {sentence}")


def refuse_unknown_fields(kind: kinds.ResourceKind, name: str, body: Mapping[str, Any]) -> None:
    """As `kubectl apply` does: an API server that is not asked to would drop a misspelt field."""
    model = SPECS.get(kind.plural)
    for path, fields in _unknown(body.get("spec"), spec_schema(model), "spec") if model else ():
        near = difflib.get_close_matches(path.rpartition(".")[2], fields, 1)
        fix = f"did you mean {near[0]}?" if near else f"the fields here are {', '.join(fields)}"
        raise Refused(422, "Invalid", f"{kind.kind} {name}: {path}: unknown field: {fix}")


def _unknown(value: Any, schema: Mapping[str, Any], path: str) -> Iterable[tuple[str, list[str]]]:
    """Paths of fields that no schema has, each with those that there are."""
    fields = schema.get("properties", {})
    if isinstance(value, Mapping) and fields:
        for key, item in value.items():
            if key in fields:
                yield from _unknown(item, fields[key], f"{path}.{key}")
            elif not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{key}", sorted(fields)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(item, schema.get("items", {}), f"{path}[{index}]")
