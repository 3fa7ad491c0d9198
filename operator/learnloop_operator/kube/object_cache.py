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

from learnloop_api import names
from learnloop_operator.kube.kinds import ResourceKind

Object = dict[str, Any]
ObjectName = tuple[str, str]
"""Kind and namespace."""

REMEMBERED = 20_000
"""Deletions remembered, so that a late answer does not bring an object back."""
_OWNERS = (
    names.LABEL_DEPLOYMENT,
    names.LABEL_TRAINING_JOB,
    names.LABEL_AGENT,
    names.LABEL_STUDY,
    names.LABEL_MEMORY,
)
"""Labels that everybody selects by: they name an owner, so few objects share one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One object."""

    version: int
    labels: tuple[str, ...]
    """`key=value`; interned, for the children of an object all carry the same."""
    text: bytes


class ObjectCache:
    """Objects of `kinds` by namespace and name. A kind counts only once it was listed as a whole."""

    def __init__(self, kinds: Iterable[ResourceKind]) -> None:
        self._kinds = frozenset(kind.kind for kind in kinds)
        self._places: defaultdict[ObjectName, dict[str, Entry]] = defaultdict(dict)
        self._labelled: defaultdict[ObjectName, dict[str, tuple[str, ...]]] = defaultdict(dict)
        """Names by place and label."""
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
        if previous is None or previous.labels != labels:
            self._forget(place, name)
            self._index(place, name, labels)
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
        """The API server knows no such kind."""
        self._complete.discard(kind.kind)

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        """A fresh copy of the object."""
        entry = self._places.get((kind.kind, namespace), {}).get(name)
        return _read(entry) if entry else None

    def has(self, kind: ResourceKind, namespace: str, name: str) -> bool:
        """True if the cache has the object."""
        return name in self._places.get((kind.kind, namespace), {})

    def select(self, kind: ResourceKind, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """Copies of all objects of a namespace that carry these labels."""
        place = (kind.kind, namespace)
        result = self._places.get(place, {})
        pairs = _pairs(labels)
        owner = next(filter(_of_owner, pairs), None)
        candidates = sorted(result if owner is None else self._labelled.get(place, {}).get(owner, ()))
        return [_read(result[name]) for name in candidates if all(pair in result[name].labels for pair in pairs)]

    def names(self, kind: ResourceKind) -> list[tuple[str, str]]:
        """Namespace and name of all objects of a kind."""
        return [(place[1], name) for place, result in self._places.items() if place[0] == kind.kind for name in result]

    def _index(self, place: ObjectName, name: str, labels: tuple[str, ...]) -> None:
        index = self._labelled[place]
        for pair in filter(_of_owner, labels):
            index[pair] = (*index.get(pair, ()), name)

    def _forget(self, place: ObjectName, name: str) -> None:
        entry = self._places[place].pop(name, None)
        index = self._labelled[place]
        for pair in filter(_of_owner, entry.labels if entry else ()):
            rest = tuple(other for other in index.pop(pair) if other != name)
            if rest:
                index[pair] = rest


def _read(entry: Entry) -> Object:
    body: Object = orjson.loads(entry.text)
    return body


def _pairs(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(intern(f"{key}={value}") for key, value in labels.items())


def _of_owner(pair: str) -> bool:
    return pair.partition("=")[0] in _OWNERS


def _number(version: Any) -> int:
    text = str(version)
    return int(text) if text.isdigit() else 0
