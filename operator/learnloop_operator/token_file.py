"""A service account's token, which the kubelet replaces long before it expires."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

GOOD_FOR_SECONDS = 60.0
"""So long a token that was read is used: client-go's figure, far below the fifth of its life left at a replacement."""


class TokenFile:
    """Read anew once a minute, in a thread: not for each request, whose pass would wait for the thread's turn."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._token: str | None = None
        self._good_until = float("-inf")

    async def token(self) -> str | None:
        """The token; None where there is no such file.

        Raises:
            OSError: there is a file, and it cannot be read.
        """
        if self._clock() >= self._good_until:
            self._token = await asyncio.to_thread(self._read)
            self._good_until = self._clock() + GOOD_FOR_SECONDS
        return self._token

    def _read(self) -> str | None:
        try:
            return self._path.read_text().strip()
        except FileNotFoundError:
            return None
