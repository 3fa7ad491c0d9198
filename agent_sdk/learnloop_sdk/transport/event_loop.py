"""The event loop that holds an object's tasks and connections; another one may take over when it has ended."""

import asyncio
import os

from learnloop_sdk.errors import LearnloopError


class EventLoopOwner:
    """Tells when an object meets a new event loop: after `asyncio.run` has returned, or in the child of a fork."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = 0

    def is_new(self) -> bool:
        """Is this the first call from the running loop? Then connections, tasks and events have to be made again.

        Raises:
            LearnloopError: another event loop of this process still runs, in another thread.
        """
        loop, process = asyncio.get_running_loop(), os.getpid()
        if loop is self._loop and process == self._process:
            return False
        if self._loop is not None and process == self._process and self._loop.is_running():
            raise LearnloopError(
                "Learnloop: used from a second event loop while the first one runs: make one Learnloop for each thread"
            )
        self._loop, self._process = loop, process
        return True
