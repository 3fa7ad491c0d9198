"""The reward models in use: each in a process of its own, all of them together within a bound."""

import asyncio
import contextlib
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from tempfile import mkdtemp

import orjson

from learnloop_dataplane.errors import ApiError

MOST_BYTES = 256 * 2**20
"""Of all models that are loaded at once; a larger one is not used."""
MOST_PROCESSES = 4
LOAD_SECONDS = 60.0
SCORE_SECONDS = 15.0
REMEMBER_SECONDS = 60.0
"""That a model could not be used: its file is not fetched again for each episode."""
MOST_REMEMBERED = 1000

Fetch = Callable[[str, str, int], Awaitable[bytes]]
"""A namespace's artifact by digest, of at most so many bytes. Raises ApiError: there is none, or it is larger."""
Key = tuple[str, str]


class Refused(Exception):
    """There is no score; one sentence says why."""


class Scorers:
    """Of all namespaces. A namespace sees its own artifacts alone, and two namespaces never share a process."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._alive: OrderedDict[Key, tuple[Process, int, str]] = OrderedDict()
        self._refused: OrderedDict[Key, tuple[float, str]] = OrderedDict()
        self._one = asyncio.Lock()

    async def score(self, namespace: str, sha256: str, question: str, answer: str) -> float:
        """What the model with this digest makes of an answer, 0 to 1. One answer at a time.

        Raises:
            Refused: the model cannot be used, or not for this answer.
            Unavailable: the artifact store does not answer; ask again later.
        """
        key = (namespace, sha256)
        async with self._one:
            known = self._refused.get(key)
            if known is not None and time.monotonic() - known[0] < REMEMBER_SECONDS:
                raise Refused(known[1])
            process = await self._process(key)
            question_line = orjson.dumps([question, answer]) + b"\n"
            try:
                found = await self._ask(process, question_line, SCORE_SECONDS)
            except (TimeoutError, ValueError, OSError):
                await self._end(key)
                raise self._remembered(key, f"the reward model gave no answer within {SCORE_SECONDS:g} s") from None
        value = found.get("score")
        if not isinstance(value, float):
            raise Refused(str(found.get("refused", "the reward model gave no score")))
        return min(1.0, max(0.0, value))

    async def close(self) -> None:
        """Ends all processes."""
        for key in list(self._alive):
            await self._end(key)

    async def _process(self, key: Key) -> Process:
        found = self._alive.get(key)
        if found is not None and found[0].returncode is None:
            self._alive.move_to_end(key)
            return found[0]
        self._alive.pop(key, None)
        try:
            body = await self._fetch(*key, MOST_BYTES)
        except ApiError as error:
            raise self._remembered(key, f"reward model {key[1][:12]}: {error.message}") from None
        while self._alive and (
            len(self._alive) >= MOST_PROCESSES
            or sum(size for _, size, _ in self._alive.values()) + len(body) > MOST_BYTES
        ):
            await self._end(next(iter(self._alive)))
        folder = mkdtemp(prefix="scorer-")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "learnloop_dataplane.evaluators.scorer_process",
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            # Nothing of this process's: no keys, no addresses.
            env={"PATH": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd=folder,
        )
        self._alive[key] = (process, len(body), folder)
        try:
            found_ready = await self._ask(process, len(body).to_bytes(8, "big") + body, LOAD_SECONDS)
        except (TimeoutError, ValueError, OSError):
            found_ready = {}
        except BaseException:
            await self._end(key)
            raise
        if not found_ready.get("ready"):
            await self._end(key)
            why = str(found_ready.get("refused", "it was not ready in time, or took too much memory"))
            raise self._remembered(key, f"reward model {key[1][:12]} cannot be used: {why}")
        return process

    @staticmethod
    async def _ask(process: Process, sent: bytes, seconds: float) -> dict[str, object]:
        assert process.stdin is not None
        assert process.stdout is not None
        async with asyncio.timeout(seconds):
            process.stdin.write(sent)
            await process.stdin.drain()
            line = await process.stdout.readline()
        answer = orjson.loads(line)
        return answer if isinstance(answer, dict) else {}

    def _remembered(self, key: Key, why: str) -> Refused:
        self._refused[key] = (time.monotonic(), why)
        self._refused.move_to_end(key)
        if len(self._refused) > MOST_REMEMBERED:
            self._refused.popitem(last=False)
        return Refused(why)

    async def _end(self, key: Key) -> None:
        process, _, folder = self._alive.pop(key)
        if process.returncode is None:
            process.kill()
        await process.wait()
        with contextlib.suppress(OSError):
            os.rmdir(folder)
