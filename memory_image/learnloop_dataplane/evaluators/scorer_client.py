"""One reward model's process, seen from the data plane."""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from tempfile import mkdtemp
from typing import Any

import orjson

from learnloop_dataplane.concurrency.process_apart import started_apart


class Ended(Exception):
    """The process is of no use any more; one sentence says why."""


class Scorer:
    """Asks one process, one question at a time. Whatever goes wrong ends it, so no answer is ever left unread."""

    def __init__(self, process: Process, folder: str) -> None:
        self.process, self._folder, self._asked = process, folder, 0

    @classmethod
    async def start(cls, most_bytes: int) -> "Scorer":
        """A process that may write to so many bytes of memory, in an empty folder.

        Raises:
            OSError: none can be started.
        """
        folder = mkdtemp(prefix="scorer-")
        try:
            arguments = "-m", "learnloop_dataplane.evaluators.scorer_process", str(most_bytes)
            process = await started_apart(sys.executable, *arguments, folder=folder, OMP_NUM_THREADS="1")
        except BaseException:
            os.rmdir(folder)
            raise
        return cls(process, folder)

    @property
    def usable(self) -> bool:
        """Whether it can be asked."""
        return self.process.returncode is None

    async def load(self, size: int, chunks: AsyncIterator[bytes], seconds: float) -> dict[str, Any]:
        """Gives it its model. Raises Ended."""

        async def sent() -> None:
            await self._send(size.to_bytes(8, "big"))
            left = size
            async for chunk in chunks:
                await self._send(chunk)
                left -= len(chunk)
            if left:
                raise Ended("the artifact store sent a file of another size")

        return await self._answered(sent(), 0, seconds)

    async def ask(self, question: str, answer: str, seconds: float) -> dict[str, Any]:
        """What it says of an answer. Raises Ended."""
        self._asked += 1
        line = orjson.dumps([self._asked, question, answer]) + b"\n"
        return await self._answered(self._send(line), self._asked, seconds)

    async def _answered(self, sending: Any, number: int, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                await sending
                line = await self.process.stdout.readline()
            found = orjson.loads(line)
            if not isinstance(found, dict) or found.get("number") != number:
                raise ValueError("the answer belongs to another question")
        except BaseException as error:
            await self.end()
            if isinstance(error, TimeoutError):
                raise Ended(f"it gave no answer within {seconds:g} s") from None
            if isinstance(error, ValueError | OSError):
                raise Ended("its process ended, or spoke no protocol") from None
            raise
        return found

    async def _send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        await self.process.stdin.drain()

    async def end(self) -> None:
        """Kills it, and waits for that."""
        self.kill()
        await self.process.wait()

    def kill(self) -> None:
        """Kills it, and leaves no folder."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)
