"""The objects of a cluster, kept current by lists and watches, and their changes by number."""

import random
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from learnloop_operator.cli.cluster import Cluster
from learnloop_operator.cli.objects import KINDS, CommandError, NoAnswerError, Object, VersionGoneError, status_of
from learnloop_operator.statistics.e_values import Counts, mean_interval

CHANGES = ("ADDED", "MODIFIED", "DELETED")
SHORTEST_PAUSE, LONGEST_PAUSE = 0.25, 10.0
ALPHA = 0.05
Key = tuple[str, str, str]
"""Plural, namespace, name."""
_UNSHOWN = ("managedFields", "selfLink")
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(slots=True)
class ReadChanges:
    """Everything (`snapshot`) or what changed, and the number to read on from. An object None: it is gone."""

    number: int
    snapshot: list[Object] | None = None
    changes: dict[Key, Object | None] = field(default_factory=dict)


class ChangeLog:
    """Objects by key, with the number of their last change. Watching threads write, readers' threads wait."""

    def __init__(self) -> None:
        self._objects: dict[Key, tuple[int, Object | None]] = {}
        self._number = 0
        self._moved = threading.Condition()

    def put(self, plural: str, body: Object) -> None:
        metadata = body["metadata"]
        self._note((plural, metadata["namespace"], metadata["name"]), _shown(plural, body))

    def remove(self, plural: str, namespace: str, name: str) -> None:
        self._note((plural, namespace, name), None)

    def replace(self, plural: str, namespace: str | None, bodies: list[Object]) -> None:
        """Take in a whole list: missing objects are gone, equal ones did not change."""
        listed = {(plural, body["metadata"]["namespace"], body["metadata"]["name"]) for body in bodies}
        with self._moved:
            keys = [key for key in self._objects if key[0] == plural and namespace in (None, key[1])]
        for key in keys:
            if key not in listed:
                self._note(key, None)
        for body in bodies:
            self.put(plural, body)

    def wake(self) -> None:
        """Let every reader look again, though no object changed: also one that is not waiting yet."""
        with self._moved:
            self._number += 1
            self._moved.notify_all()

    def read(self, since: int | None, seconds: float) -> ReadChanges:
        """Everything where `since` is None; else the changes after it, waiting for one if there are none."""
        with self._moved:
            if since == self._number:
                self._moved.wait(seconds)
            current = list(self._objects.items())
            if since is None:
                return ReadChanges(self._number, [body for _, (_, body) in current if body is not None])
            return ReadChanges(self._number, None, {key: body for key, (number, body) in current if number > since})

    def _note(self, key: Key, body: Object | None) -> None:
        with self._moved:
            if body == self._objects.get(key, (0, None))[1]:
                return
            self._number += 1
            self._objects[key] = self._number, body
            self._moved.notify_all()


def _shown(plural: str, body: Object) -> Object:
    """The object without the fields that only programs read."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in _UNSHOWN}
    if _APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {key: value for key, value in metadata["annotations"].items() if key != _APPLIED}
    intervals = {"intervals": evidence_intervals(body)} if plural == "modeldeployments" else {}
    return {**body, **intervals, "metadata": metadata, "plural": plural}


def evidence_intervals(rollout: Object) -> dict[str, dict[str, list[float]]]:
    """By metric and arm: the mean of the compared values (0 to 1), the ends of its 95 % confidence sequence, and the
    number of episodes. Leaves out arms without episodes, and malformed evidence."""
    intervals: dict[str, dict[str, list[float]]] = {}
    evidence = status_of(rollout).get("evidence")
    for item in evidence if isinstance(evidence, list) else []:
        # One malformed object must not break the console for all others.
        with suppress(ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            judged: Any = item.get("judged") or ()
            arms = {"canary": judged[:2], "stable": judged[2:]} if len(judged) == 4 else {}
            intervals[str(item["name"])] = {
                arm: [total / n, *mean_interval(Counts(n, total), ALPHA), n]
                for arm, (n, total) in arms.items()
                if n > 0
            }
    return intervals


@dataclass
class ClusterWatch:
    """Watches all kinds with a thread for each, in these namespaces, or in all where `namespaces` is None.

    `problems` has the reason for each kind and namespace that cannot be read; `silent`, for each whose API server does
    not answer.
    """

    cluster: Cluster
    log: ChangeLog
    namespaces: tuple[str, ...] | None
    problems: dict[str, str] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)
    _listed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def away(self) -> str:
        """Why the API server cannot be reached; empty while it answers."""
        return next(iter(list(self.silent.values())), "")

    def start(self) -> None:
        """Begin; the threads do not keep the process alive."""
        for plural, namespace in self._watched():
            threading.Thread(target=self._follow, args=(plural, namespace), daemon=True).start()

    def wait_for_lists(self, seconds: float) -> None:
        """Until each kind was listed once, or so long."""
        for _ in self._watched():
            if not self._listed.acquire(timeout=seconds):
                return

    def stop(self) -> None:
        self.stopped.set()

    def _watched(self) -> list[tuple[str, str | None]]:
        return [(plural, name) for plural in KINDS for name in self.namespaces or (None,)]

    def _follow(self, plural: str, namespace: str | None) -> None:
        version, place = "", f"{plural} in {namespace or 'all namespaces'}"
        while not self.stopped.is_set():
            try:
                version = version or self._list(plural, namespace, place)
                for kind, body in self.cluster.changes(plural, namespace, version):
                    version = body["metadata"]["resourceVersion"]
                    if kind in CHANGES:
                        self._take(plural, kind, body)
                    if self.stopped.is_set():
                        return
            except VersionGoneError:
                version = ""
                self.stopped.wait(SHORTEST_PAUSE)
            except NoAnswerError as error:
                version = ""
                self._report(self.silent, place, str(error))
                self.stopped.wait(SHORTEST_PAUSE * random.uniform(1.0, 4.0))
            except Exception as error:
                # Such as a missing right, or a truncated line: readers must not take it for silence.
                version = ""
                self._report(self.problems, place, str(error) if isinstance(error, CommandError) else repr(error))
                self.stopped.wait(LONGEST_PAUSE * random.uniform(0.75, 1.25))

    def _report(self, where: dict[str, str], place: str, sentence: str) -> None:
        news = place not in where
        where[place] = sentence
        if news:
            self._listed.release()
            self.log.wake()

    def _list(self, plural: str, namespace: str | None, place: str) -> str:
        """Take the list in; returns its version."""
        version, bodies = self.cluster.list_objects(plural, namespace)
        self.log.replace(plural, namespace, bodies)
        self.problems.pop(place, None)
        if self.silent.pop(place, None):
            self.log.wake()
        self._listed.release()
        return version

    def _take(self, plural: str, kind: str, body: Object) -> None:
        metadata = body["metadata"]
        if kind == "DELETED":
            self.log.remove(plural, metadata["namespace"], metadata["name"])
        else:
            self.log.put(plural, body)
