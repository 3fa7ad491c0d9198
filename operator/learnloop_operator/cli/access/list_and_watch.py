"""Lists and watches of several kinds at once: what there is, kept current."""

import threading
from collections.abc import Iterable
from queue import Empty, Queue

from learnloop_operator.cli.access.cluster import Cluster, Object
from learnloop_operator.cli.errors import CommandError

WatchedChange = tuple[str, dict[str, Object]]
"""A plural, and all objects of it by name."""


class Follower:
    """One thread for each kind. A watch that ends, for whatever reason (410 Gone too), begins with a new list."""

    def __init__(self, cluster: Cluster, plurals: Iterable[str]) -> None:
        self._cluster = cluster
        self._queue: Queue[WatchedChange | CommandError] = Queue()
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._follow, args=(plural,), daemon=True) for plural in plurals]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End with the next event; the threads do not keep the process alive."""
        self._stopped.set()

    def next(self, seconds: float) -> WatchedChange | None:
        """The next change, None after so many seconds without one.

        Raises:
            CommandError: the API server refuses, or has not answered for a while.
        """
        try:
            found = self._queue.get(timeout=seconds)
        except Empty:
            return None
        if isinstance(found, CommandError):
            raise found
        return found

    def _follow(self, plural: str) -> None:
        failures = 0
        while not self._stopped.is_set():
            try:
                version, known = self._cluster.listed(plural)
                self._queue.put((plural, dict(known)))
                failures = 0
                for kind, body in self._cluster.watch(plural, version):
                    name = body["metadata"]["name"]
                    if kind == "DELETED":
                        known.pop(name, None)
                    else:
                        known[name] = body
                    self._queue.put((plural, dict(known)))
                    if self._stopped.is_set():
                        return
            except CommandError as error:
                failures += 1
                if failures >= 5:
                    self._queue.put(error)
                    return
                self._stopped.wait(2.0 ** min(failures, 4) / 4)
