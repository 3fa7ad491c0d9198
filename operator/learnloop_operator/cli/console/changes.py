"""The objects that the console shows, and their newest changes by number, so that a reader can resume."""

import secrets
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from learnloop_operator.cli.objects import Object
from learnloop_operator.cli.objects import status as status_of
from learnloop_operator.statistics.betting import Counts, mean_interval

ALPHA = 0.05
REMEMBERED = 4000
"""Changes that a reader may have missed and still resume; further back it gets a snapshot."""
Key = tuple[str, str, str]
"""Plural, namespace, name."""
_UNSHOWN = ("managedFields", "selfLink")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One object as it is now; `body` None: it is gone."""

    number: int
    key: Key
    body: Object | None

    def data(self) -> dict[str, Any]:
        """As it is sent."""
        plural, namespace, name = self.key
        return {"plural": plural, "namespace": namespace, "name": name, "object": self.body}


@dataclass(slots=True)
class ReadChanges:
    """Everything (`snapshot`) or the changes, and the mark to resume from."""

    mark: str
    snapshot: list[Object] | None = None
    changes: list[LoggedChange] = field(default_factory=list)


class ChangeLog:
    """Objects by key with a counter of changes. Threads that watch write, threads of readers wait."""

    def __init__(self) -> None:
        self._objects: dict[Key, Object] = {}
        self._changes: deque[LoggedChange] = deque(maxlen=REMEMBERED)
        self._number = 0
        # Marks of a console that ran before mean nothing to this one.
        self._epoch = secrets.token_hex(4)
        self._moved = threading.Condition()

    def put(self, plural: str, body: Object) -> None:
        """The object is there, as this."""
        metadata = body["metadata"]
        shown = _shown(plural, body)
        self._note((plural, metadata["namespace"], metadata["name"]), shown)

    def remove(self, plural: str, namespace: str, name: str) -> None:
        """The object is gone."""
        self._note((plural, namespace, name), None)

    def replace(self, plural: str, namespace: str | None, bodies: list[Object]) -> None:
        """These are all objects of the kind there: missing ones are gone, equal ones did not change."""
        there = {(plural, body["metadata"]["namespace"], body["metadata"]["name"]) for body in bodies}
        with self._moved:
            gone = [
                key for key in self._objects if key[0] == plural and namespace in (None, key[1]) and key not in there
            ]
        for key in gone:
            self._note(key, None)
        for body in bodies:
            self.put(plural, body)

    def wake(self) -> None:
        """Readers that wait read on, though nothing changed here."""
        with self._moved:
            self._moved.notify_all()

    def read(self, mark: str | None, seconds: float) -> ReadChanges:
        """Changes since the mark, waiting for one if there are none; everything where the mark is unknown."""
        with self._moved:
            since = self._since(mark)
            if since is None:
                return ReadChanges(self._mark(self._number), list(self._objects.values()))
            if since == self._number:
                self._moved.wait(seconds)
            since_now = self._since(mark)
            if since_now is None:
                return ReadChanges(self._mark(self._number), list(self._objects.values()))
            # Of several changes of one object the newest says all.
            newest = {change.key: change for change in self._changes if change.number > since_now}
            return ReadChanges(self._mark(self._number), changes=list(newest.values()))

    def _note(self, key: Key, body: Object | None) -> None:
        with self._moved:
            old = self._objects.get(key)
            if body == old:
                return
            if body is None:
                del self._objects[key]
            else:
                self._objects[key] = body
            self._number += 1
            self._changes.append(LoggedChange(self._number, key, body))
            self._moved.notify_all()

    def _mark(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    def _since(self, mark: str | None) -> int | None:
        """The number in a mark; None where nothing can be resumed from it."""
        epoch, _, number = (mark or "").partition("-")
        if epoch != self._epoch or not number.isdecimal() or len(number) > 18:
            return None
        oldest = self._changes[0].number if self._changes else self._number + 1
        return int(number) if oldest - 1 <= int(number) <= self._number else None


def _shown(plural: str, body: Object) -> Object:
    """The object without what only programs read."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in _UNSHOWN}
    if _APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {key: value for key, value in metadata["annotations"].items() if key != _APPLIED}
    intervals = {"intervals": evidence_intervals(body)} if plural == "modeldeployments" else {}
    return {**body, **intervals, "metadata": metadata, "plural": plural}


def evidence_intervals(rollout: Object) -> dict[str, dict[str, list[float]]]:
    """By metric and arm: the mean of the compared values (0 to 1), the ends of its 95 % confidence sequence, and the
    number of episodes. Arms with none are left out, and so is what the status says in another form than it should."""
    intervals: dict[str, dict[str, list[float]]] = {}
    for item in _listed(status_of(rollout).get("evidence")):
        # One malformed object must not break the console for all others.
        with suppress(ArithmeticError, LookupError, TypeError, ValueError):
            intervals[str(item.get("name"))] = _of_arms(item.get("judged"))
    return intervals


def _listed(value: object) -> list[Object]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _of_arms(judged: Sequence[float] | None) -> dict[str, list[float]]:
    arms = {"canary": judged[:2], "stable": judged[2:]} if judged and len(judged) == 4 else {}
    return {arm: [total / n, *mean_interval(Counts(n, total), ALPHA), n] for arm, (n, total) in arms.items() if n > 0}
