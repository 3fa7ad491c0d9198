"""What the operator last knew of the objects it works on: compact, and never older than its own last write.

An entry only ever moves to a newer resourceVersion (the API server's are ordered within a kind), whoever brings it: a
list, a watch event, or the answer to one of our own writes. Bodies are kept as JSON text: a tenth of the memory of
parsed objects, and nobody can change them by accident.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from learnloop_api import names
from learnloop_operator.adapters.kinds import ResourceKind

Object = dict[str, Any]
Place = tuple[str, str]
"""Kind and namespace."""

REMEMBERED = 20_000
"""Deletions remembered, so that a late answer does not bring an object back."""
_PREFIX = f"{names.GROUP}/"


@dataclass(frozen=True, slots=True)
class Entry:
    """One object."""

    version: int
    labels: Mapping[str, str]
    text: bytes


class Cache:
    """Objects of `kinds` by namespace and name. A kind counts only once it was listed as a whole."""

    def __init__(self, kinds: Iterable[ResourceKind]) -> None:
        self._kinds = frozenset(kind.kind for kind in kinds)
        self._places: defaultdict[Place, dict[str, Entry]] = defaultdict(dict)
        self._labelled: defaultdict[tuple[Place, str], set[str]] = defaultdict(set)
        self._deleted: OrderedDict[tuple[Place, str], int] = OrderedDict()
        self._doubted: defaultdict[Place, set[str]] = defaultdict(set)
        self._complete: set[str] = set()
        self._unknown: set[str] = set()

    def complete(self, kind: ResourceKind) -> bool:
        """The kind was listed: what is not here does not exist, as far as we have heard."""
        return kind.kind in self._complete

    def unknown(self, kind: ResourceKind) -> bool:
        """When it was last to be listed the API server knew no such kind, and nobody saw an object of it since."""
        return kind.kind in self._unknown

    def put(self, kind: ResourceKind, body: Mapping[str, Any]) -> bool:
        """Someone saw this object; True when that was news."""
        if kind.kind not in self._kinds:
            return True
        self._unknown.discard(kind.kind)
        metadata = body["metadata"]
        place, name = (kind.kind, metadata["namespace"]), metadata["name"]
        version, known = _number(metadata.get("resourceVersion")), self._places[place].get(name)
        if version <= max(known.version if known else -1, self._deleted.get((place, name), -1)):
            return False
        labels = dict(metadata.get("labels") or {})
        text = orjson.dumps({"apiVersion": kind.api_version, "kind": kind.kind, **body})
        self._forget(place, name)
        self._places[place][name] = Entry(version, labels, text)
        for pair in _indexed(labels):
            self._labelled[place, pair].add(name)
        return True

    def remove(self, kind: ResourceKind, body: Mapping[str, Any]) -> None:
        """Someone saw that this object was deleted."""
        metadata = body["metadata"]
        place, name = (kind.kind, metadata["namespace"]), metadata["name"]
        version, known = _number(metadata.get("resourceVersion")), self._places[place].get(name)
        if known is None or known.version <= version:
            self._forget(place, name)
        self._deleted[place, name] = max(version, self._deleted.pop((place, name), -1))
        while len(self._deleted) > REMEMBERED:
            self._deleted.popitem(last=False)

    def settle(self, kind: ResourceKind, namespace: str, name: str, body: Mapping[str, Any] | None) -> None:
        """A live read of one object: what it says (None: there is none) ends every doubt."""
        if body is None:
            self._forget((kind.kind, namespace), name)
        else:
            self.put(kind, body)
        self._doubted[kind.kind, namespace].discard(name)

    def doubt(self, kind: ResourceKind, namespace: str, name: str) -> None:
        """We had it deleted: it is read live until a live read says what became of it."""
        if kind.kind in self._kinds:
            self._doubted[kind.kind, namespace].add(name)

    def doubted(self, kind: ResourceKind, namespace: str) -> frozenset[str]:
        """Names that must be read live."""
        return frozenset(self._doubted.get((kind.kind, namespace), ()))

    def listed(self, kind: ResourceKind, present: Collection[tuple[str, str]], version: str) -> None:
        """All of the kind, as of `version`, have been `put`: what is not `present` (namespace, name) and was not seen
        since then is gone."""
        for place in [place for place in self._places if place[0] == kind.kind]:
            for name, entry in tuple(self._places[place].items()):
                if (place[1], name) not in present and entry.version <= _number(version):
                    self._forget(place, name)
        self._complete.add(kind.kind)
        self._unknown.discard(kind.kind)

    def unlisted(self, kind: ResourceKind) -> None:
        """The API server knows no such kind."""
        self._complete.discard(kind.kind)
        self._unknown.add(kind.kind)

    def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        """A fresh copy of the object."""
        entry = self._places.get((kind.kind, namespace), {}).get(name)
        return orjson.loads(entry.text) if entry else None

    def select(self, kind: ResourceKind, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        """Copies of all objects of a namespace that carry these labels."""
        place = (kind.kind, namespace)
        found = self._places.get(place, {})
        pair = next(iter(_indexed(labels)), None)
        candidates = sorted(found if pair is None else self._labelled.get((place, pair), ()))
        return [orjson.loads(found[name].text) for name in candidates if labels.items() <= found[name].labels.items()]

    def names(self, kind: ResourceKind) -> list[tuple[str, str]]:
        """Namespace and name of all objects of a kind."""
        return [(place[1], name) for place, found in self._places.items() if place[0] == kind.kind for name in found]

    def _forget(self, place: Place, name: str) -> None:
        entry = self._places[place].pop(name, None)
        for pair in _indexed(entry.labels) if entry else ():
            self._labelled[place, pair].discard(name)


def _indexed(labels: Mapping[str, str]) -> Iterable[str]:
    return (f"{key}={value}" for key, value in labels.items() if key.startswith(_PREFIX))


def _number(version: Any) -> int:
    text = str(version)
    return int(text) if text.isdigit() else 0
