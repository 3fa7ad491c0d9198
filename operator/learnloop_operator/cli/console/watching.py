"""Keeps the change log current: a thread for each kind and namespace, and one for the API server's pulse."""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from learnloop_operator.cli.console.changes import ChangeLog
from learnloop_operator.cli.objects import KINDS, Cluster, CommandError, NotAllowedError, Object, VersionGoneError

CHANGES = ("ADDED", "MODIFIED", "DELETED")
BEAT_SECONDS = 1.0
MOST_NAMESPACES = 20
"""Watched one by one, five connections each; who reads more of them can read the cluster, or names them."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.25, 10.0


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
    """Asks every second, in a thread of its own, and says when the answer is another one."""

    def __init__(self, ask: Callable[[], None], changed: Callable[[], None]) -> None:
        """
        Args:
            ask: raises CommandError where the API server does not answer, after a second or two.
            changed: called when it has gone away, or has come back.
        """
        self._ask, self._changed = ask, changed
        self.away = ""
        """Why nothing can be known now; empty while it answers."""
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
    """Watches every kind in what is visible. `problems` says, by kind and namespace, what can't be read now; `pulse`,
    whether anything can be known at all."""

    reads: Cluster
    log: ChangeLog
    where: WatchedNamespaces
    problems: dict[str, str] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)
    _resting: threading.Condition = field(default_factory=threading.Condition)
    _listed: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.pulse = Pulse(self.reads.reach, self._moved)

    def start(self) -> None:
        """Begin; the threads do not keep the process alive."""
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
        return [(plural, name) for plural in KINDS for name in self.where.names or (None,)]

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
                # Such as a truncated line or an object of another version. Every page names it, so that none
                # looks live while it stands still.
                version, failures = "", failures + 1
                self.problems[_where(plural, namespace)] = (
                    str(error) if isinstance(error, CommandError) else repr(error)
                )
                if not reported:
                    reported = True
                    self._listed.release()
                # A right that is missing seldom comes back soon; a server that is away does.
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
