"""Tells the data plane news. Nothing waits for it: a data plane that is away holds up no rollout and no training."""

import asyncio
import logging
from collections import deque

from learnloop_operator.core.plan import Announcement, Call
from learnloop_operator.data_plane import DataPlane, DataPlaneRefused, DataPlaneUnavailable
from learnloop_operator.kube.errors import NotLeading

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
MAX_WAITING = 10_000


class Announcer:
    """Delivers in order, at least once, each identity of a path once while this process lives.

    A process that dies forgets what was waiting; the next one tells what is so then, and the data plane knows
    whether that is news.
    """

    def __init__(self, data_plane: DataPlane) -> None:
        self._data_plane = data_plane
        self._said: dict[tuple[str, str], str] = {}
        self._waiting: deque[tuple[str, Call]] = deque(maxlen=MAX_WAITING)
        self._wake = asyncio.Event()

    def say(self, namespace: str, news: Announcement) -> None:
        """Puts it in the queue unless it was the last thing said at this path."""
        key = (namespace, news.call.path)
        if self._said.get(key) == news.identity:
            return
        if len(self._said) >= MAX_WAITING:
            self._said.clear()  # saying it again does no harm
        self._said[key] = news.identity
        self._waiting.append((namespace, news.call))
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
                    log.info("%s of %s is told later: %s", call.path, namespace, error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE)
                    continue
                except DataPlaneRefused as error:
                    log.warning("%s of %s cannot be told: %s", call.path, namespace, error)
                pause = FIRST_PAUSE
                if self._waiting and self._waiting[0][1] is call:
                    self._waiting.popleft()
