"""The objects of a cluster, kept current by lists and watches, and their newest changes by number."""

import random
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from learnloop_operator.cli.objects import KINDS, Cluster, CommandError, NotAllowedError, Object, VersionGoneError
from learnloop_operator.cli.objects import status as status_of
from learnloop_operator.statistics.betting import Counts, mean_interval

CHANGES = ("ADDED", "MODIFIED", "DELETED")
BEAT_SECONDS = 1.0
MOST_NAMESPACES = 20
"""Watched one by one, five connections each; who reads more of them can read the cluster, or names them."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.25, 10.0


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

    def objects(self, plural: str) -> list[Object]:
        """Those of one kind, by namespace and name."""
        with self._moved:
            return [body for (kind, _, _), body in sorted(self._objects.items()) if kind == plural]

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


@dataclass(frozen=True, slots=True)
class WatchedNamespaces:
    """The namespaces that the caller sees, None for all, and a sentence where it is not all."""

    names: tuple[str, ...] | None
    message: str = ""


def visible(reads: Cluster, own: str, named: Sequence[str]) -> WatchedNamespaces:
    """All namespaces; else those the caller may list rollouts in; else the context's own.

    Raises:
        CommandError: too many are named, or the API server does not answer.
    """
    if len(named) > MOST_NAMESPACES:
        raise CommandError(f"--namespaces names {len(named)}: at most {MOST_NAMESPACES}; leave it out to see all")
    if named:
        return WatchedNamespaces(tuple(dict.fromkeys(named)))
    if reads.allowed("list", "modeldeployments", None):
        return WatchedNamespaces(None)
    candidates = reads.namespaces()
    readable = reads.readable("modeldeployments", candidates[: 10 * MOST_NAMESPACES])
    names = readable[:MOST_NAMESPACES] or [own]
    more = len(readable) - len(names)
    message = f"You may read {'these namespaces' if len(names) > 1 else 'one namespace'} of the cluster."
    left_out = f" {more} more are left out: name them by --namespaces." if more > 0 else ""
    return WatchedNamespaces(tuple(names), message + left_out)


class Pulse:
    """Asks the API server every second, in a thread, and reports when it goes away or comes back."""

    def __init__(self, ask: Callable[[], None], changed: Callable[[], None]) -> None:
        self._ask, self._changed = ask, changed
        self.away = ""
        self.stopped = threading.Event()

    def start(self) -> None:
        """Begin; the thread does not keep the process alive."""
        threading.Thread(target=self._beat, daemon=True).start()

    def stop(self) -> None:
        """End with the next answer."""
        self.stopped.set()

    def _beat(self) -> None:
        while not self.stopped.wait(BEAT_SECONDS):
            try:
                self._ask()
                away = ""
            except Exception as error:
                # Any error counts; if the thread ended, the pages would stay as they are.
                away = str(error) if isinstance(error, CommandError) else repr(error)
            if bool(away) != bool(self.away):
                self.away = away
                self._changed()


@dataclass
class ClusterWatch:
    """Watches `kinds`, all by default, in the visible namespaces, with a thread for each.

    `problems` has the reason for each kind and namespace that cannot be read now; `pulse`, whether the API server
    answers.
    """

    reads: Cluster
    log: ChangeLog
    where: WatchedNamespaces
    kinds: Iterable[str] | None = None
    problems: dict[str, str] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)
    _resting: threading.Condition = field(default_factory=threading.Condition)
    _listed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.pulse = Pulse(self.reads.reach, self._moved)

    def start(self, *, pulse: bool = True) -> None:
        """Begin; the threads do not keep the process alive."""
        if pulse:
            self.pulse.start()
        for plural, namespace in self._watched():
            threading.Thread(target=self._follow, args=(plural, namespace), daemon=True).start()

    def wait_for_lists(self, seconds: float) -> None:
        """Until each kind was listed once, or so long."""
        for _ in self._watched():
            if not self._listed.acquire(timeout=seconds):
                return

    def stop(self) -> None:
        """End with the next event."""
        self.stopped.set()
        self.pulse.stop()
        self._wake()

    def _moved(self) -> None:
        """The API server went away or came back: readers get the news, and no thread rests any longer."""
        self.log.wake()
        self._wake()

    def _wake(self) -> None:
        with self._resting:
            self._resting.notify_all()

    def _watched(self) -> list[tuple[str, str | None]]:
        return [(plural, name) for plural in self.kinds or KINDS for name in self.where.names or (None,)]

    def _follow(self, plural: str, namespace: str | None) -> None:
        version, failures, reported = "", 0, False
        while not self.stopped.is_set():
            try:
                version = version or self._list(plural, namespace)
                failures = 0
                if not reported:
                    reported = True
                    self._listed.release()
                for kind, body in self.reads.changes(plural, namespace, version):
                    version = body["metadata"]["resourceVersion"]
                    if kind in CHANGES:
                        self._take(plural, kind, body)
                    if self.stopped.is_set():
                        return
            except VersionGoneError:
                version = ""
                self._rest(SHORTEST_PAUSE)
            except Exception as error:
                # Such as a truncated line or an object of another version: readers must not take it for silence.
                version, failures = "", failures + 1
                self.problems[_where(plural, namespace)] = (
                    str(error) if isinstance(error, CommandError) else repr(error)
                )
                if not reported:
                    reported = True
                    self._listed.release()
                # A missing right seldom comes back soon; a server that is away does.
                soon = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0 ** min(failures, 6))
                pause = LONGEST_PAUSE if isinstance(error, NotAllowedError) else soon
                self._rest(pause * random.uniform(0.75, 1.25))

    def _rest(self, seconds: float) -> None:
        with self._resting:
            if not self.stopped.is_set():
                self._resting.wait(seconds)

    def _list(self, plural: str, namespace: str | None) -> str:
        """Take the list in; returns its version."""
        version, bodies = self.reads.list_objects(plural, namespace)
        self.log.replace(plural, namespace, bodies)
        self.problems.pop(_where(plural, namespace), None)
        return version

    def _take(self, plural: str, kind: str, body: Object) -> None:
        metadata = body["metadata"]
        if kind == "DELETED":
            self.log.remove(plural, metadata["namespace"], metadata["name"])
        else:
            self.log.put(plural, body)


def _where(plural: str, namespace: str | None) -> str:
    return f"{plural} in {namespace or 'all namespaces'}"
