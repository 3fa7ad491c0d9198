"""Cache of the objects that the operator works on: compact, and never older than its own last write.

An entry only ever moves to a newer resourceVersion; the API server's are ordered within a kind. A list, a watch event
or the answer to one of our own writes may bring it. Bodies are stored as JSON text: a tenth of the memory of parsed
objects, and safe from accidental changes.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

import orjson

from learnloop_operator.kube.kinds import ResourceKind

Object = dict[str, Any]
ObjectName = tuple[str, str]
"""Kind and namespace."""

REMEMBERED = 20_000
"""Deletions remembered, so that a late answer does not bring an object back."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object."""

    version: int
    labels: frozenset[str]
    """`key=value`; interned, for the children of an object all carry the same."""
    text: bytes


class ObjectCache:
    """Objects of `kinds` by namespace and name. A kind counts only once it was listed as a whole."""

    def __init__(self, kinds: Iterable[ResourceKind]) -> None:
        self._kinds = frozenset(kind.kind for kind in kinds)
        self._places: defaultdict[ObjectName, dict[str, Entry]] = defaultdict(dict)
        self._deleted: OrderedDict[tuple[ObjectName, str], int] = OrderedDict()
        self._complete: set[str] = set()

    def complete(self, kind: ResourceKind) -> bool:
        """The kind was listed: what is not here does not exist, as far as we have heard."""
        return kind.kind in self._complete

    def put(self, kind: ResourceKind, body: Mapping[str, Any]) -> bool:
        """A list, an event or an answer showed this object; True when that was news."""
        if kind.kind not in self._kinds:
            return True
        metadata = body["metadata"]
        place, name = (kind.kind, metadata["namespace"]), intern(metadata["name"])
        version, previous = _number(metadata.get("resourceVersion")), self._places[place].get(name)
        if version <= max(previous.version if previous else -1, self._deleted.get((place, name), -1)):
            return False
        labels = _pairs(metadata.get("labels") or {})
        text = orjson.dumps({"apiVersion": kind.api_version, "kind": kind.kind, **body})
        self._places[place][name] = Entry(version, labels, text)
        return True

    def remove(self, kind: ResourceKind, body: Mapping[str, Any]) -> None:
        """An event showed that this object was deleted."""
        metadata = body["metadata"]
        place, name = (kind.kind, metadata["namespace"]), metadata["name"]
        version, previous = _number(metadata.get("resourceVersion")), self._places[place].get(name)
        if previous is None or previous.version <= version:
            self._forget(place, name)
        self._deleted[place, name] = max(version, self._deleted.pop((place, name), -1))
        while len(self._deleted) > REMEMBERED:
            self._deleted.popitem(last=False)

    def settle(self, kind: ResourceKind, namespace: str, name: str, body: Mapping[str, Any] | None) -> None:
        """The answer of a live read of one object (None: there is none)."""
        if body is None:
            self._forget((kind.kind, namespace), name)
        else:
            self.put(kind, body)

    def listed(self, kind: ResourceKind, present: Collection[tuple[str, str]], version: str) -> None:
        """All of the kind, as of `version`, have been `put`: what is not `present` (namespace, name) and was not seen
        since then is gone."""
        for place in [place for place in self._places if place[0] == kind.kind]:
            for name, entry in tuple(self._places[place].items()):
                if (place[1], name) not in present and entry.version <= _number(version):
                    self._forget(place, name)
        self._complete.add(kind.kind)

    def unlisted(self, kind: ResourceKind) -> None:
        self._complete.discard(kind.kind)

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        """A fresh copy of the object."""
        entry = self._places.get((kind.kind, namespace), {}).get(name)
        return _read(entry) if entry else None

    def has(self, kind: ResourceKind, namespace: str, name: str) -> bool:
        return name in self._places.get((kind.kind, namespace), {})

    def select(self, kind: ResourceKind, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """Copies of all objects of a namespace that carry these labels."""
        entries, pairs = self._places.get((kind.kind, namespace), {}), _pairs(labels)
        return [_read(entry) for _, entry in sorted(entries.items()) if pairs <= entry.labels]

    def names(self, kind: ResourceKind) -> list[tuple[str, str]]:
        return [(place[1], name) for place, result in self._places.items() if place[0] == kind.kind for name in result]

    def _forget(self, place: ObjectName, name: str) -> None:
        self._places[place].pop(name, None)


def _read(entry: Entry) -> Object:
    body: Object = orjson.loads(entry.text)
    return body


def _pairs(labels: Mapping[str, str]) -> frozenset[str]:
    return frozenset(intern(f"{key}={value}") for key, value in labels.items())


def _number(version: Any) -> int:
    text = str(version)
    return int(text) if text.isdigit() else 0
