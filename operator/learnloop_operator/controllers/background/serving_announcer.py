"""Tells the data plane what serves. Nothing waits for it: a data plane that is away holds up no rollout."""

import asyncio
import logging
from collections import deque

from learnloop_operator.adapters.data_plane import DataPlane, DataPlaneRefused, DataPlaneUnavailable
from learnloop_operator.adapters.kube.errors import NotLeading
from learnloop_operator.core.plan import Call

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
MAX_WAITING = 10_000


class ServingAnnouncer:
    """Delivers in order, at least once, each revision of a ModelDeployment once while this process lives.

    A process that dies forgets what was waiting; the next one tells what serves then, and the data plane knows
    whether that is news.
    """

    def __init__(self, data_plane: DataPlane) -> None:
        self._data_plane = data_plane
        self._said: dict[tuple[str, str], str] = {}
        self._waiting: deque[tuple[str, Call]] = deque(maxlen=MAX_WAITING)
        self._wake = asyncio.Event()

    def say(self, namespace: str, call: Call) -> None:
        """Puts it in the queue unless this revision was the last thing said about this ModelDeployment."""
        key, revision = (namespace, call.path), str((call.body or {})["revision"])
        if self._said.get(key) == revision:
            return
        if len(self._said) >= MAX_WAITING:
            self._said.clear()  # saying it again does no harm
        self._said[key] = revision
        self._waiting.append((namespace, call))
        self._wake.set()

    async def run(self) -> None:
        """Runs until cancelled."""
        pause = FIRST_PAUSE
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                namespace, call = self._waiting[0]
                try:
                    await self._data_plane.call(namespace, call)
                except (DataPlaneUnavailable, NotLeading) as error:
                    log.info("what serves is told later: %s", error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
                    continue
                except DataPlaneRefused as error:
                    log.warning("what serves in %s cannot be told: %s", namespace, error)
                pause = FIRST_PAUSE
                if self._waiting and self._waiting[0][1] is call:
                    self._waiting.popleft()
