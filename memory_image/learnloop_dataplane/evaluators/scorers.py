"""Reward models of tenants: each in a process of its own, as many as fit the memory of the container."""

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import Process
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar, Protocol
from weakref import WeakValueDictionary

import orjson
from cachetools import TTLCache

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.concurrency.offload import started_apart
from learnloop_dataplane.errors import ApiError, Unavailable
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, as_text


class Ended(Exception):
    """The process cannot be used any more; the message says why."""


class Scorer:
    """Asks one process, one question at a time. Any error ends it, so that no answer stays unread."""

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
        """The score of an answer, or a refusal. Raises Ended."""
        self._asked += 1
        line = orjson.dumps([self._asked, question, answer]) + b"\n"
        return await self._answered(self._send(line), self._asked, seconds)

    async def _answered(self, sending: Any, number: int, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                await sending
                line = await self.process.stdout.readline()
            reply = orjson.loads(line)
            if not isinstance(reply, dict) or reply.get("number") != number:
                raise ValueError("the answer belongs to another question")
        except BaseException as error:
            await self.end()
            if isinstance(error, TimeoutError):
                raise Ended(f"it gave no answer within {seconds:g} s") from None
            if isinstance(error, ValueError | OSError):
                raise Ended("its process ended, or spoke no protocol") from None
            raise
        return reply

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


ROOT = Path("/")
KEPT_SHARE = 8
"""One part in so many of the limit stays free: the data plane's own memory varies."""
SMALLEST = 160 * 2**20
"""Bytes of a process without its weights: Python with onnxruntime and tokenizers writes to 67 MiB before any model, the
rest is for what a model computes on the way."""
TIMES = 5
"""A model's file in memory: three times were measured (read, parsed, the weights), the rest is for what it computes."""


def needed(model_bytes: int) -> int:
    """Bytes that the process of a model of this size may write to."""
    return SMALLEST + TIMES * model_bytes


def left() -> int:
    """Bytes for the processes of all reward models together, at this moment."""
    limit = memory_limit()
    return limit - limit // KEPT_SHARE - _resident()


def memory_limit(root: Path = ROOT) -> int:
    """Bytes that this container may use, by control groups of version 2; without a limit, the machine's."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _text(root / "sys/fs/cgroup/memory.max").strip()
    return min(machine, int(limit)) if limit.isdecimal() else machine


def _resident() -> int:
    pages = _text(Path("/proc/self/statm")).split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else 0


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


MOST_BYTES = 128 * 2**20
"""Of one model; a larger one is not used."""
MOST_PROCESSES = 4
LOAD_SECONDS = 60.0
SCORE_SECONDS = 15.0
REMEMBER_SECONDS = 60.0
"""For so long an unusable model is not fetched again."""
MOST_REMEMBERED = 1000


class File(Protocol):
    """An artifact that is about to be read."""

    @property
    def size(self) -> int:
        """Its bytes."""

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        """Its content; to be read once."""


Fetch = Callable[[str, str, int], Awaitable[File]]
"""A namespace's artifact by digest, of at most so many bytes. Raises ApiError: there is none, or it is larger."""
Key = tuple[str, str]


class NoScore(Exception):
    """The model can never score this answer; the message says why."""


class NoScoreYet(Unavailable):
    """The score is missing for now; the message says why. Try again later."""

    def __init__(self, message: str, *, retry_after: int = 5) -> None:
        ApiError.__init__(self, 503, message, retry_after=retry_after)


class Scorers:
    """Of all namespaces. A namespace sees its own artifacts alone, and two namespaces never share a process.

    Args:
        fetch: what reads artifacts.
        room: bytes of memory for all processes together, at this moment.
    """

    def __init__(self, fetch: Fetch, room: Callable[[], int] = left) -> None:
        self._fetch, self._room = fetch, room
        # The least recently used first. All of this is changed between two awaits, so that no lock is needed for it.
        self._alive: OrderedDict[Key, Scorer] = OrderedDict()
        self._taken: dict[Key, int] = {}
        self._busy: set[Key] = set()
        self._unusable: TTLCache[Key, NoScore | NoScoreYet] = TTLCache(MOST_REMEMBERED, REMEMBER_SECONDS)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def score(self, namespace: str, sha256: str, question: str, answer: str) -> float:
        """Scores an answer by the model with this digest, 0 to 1. One answer of a namespace at a time.

        Raises:
            NoScore: the model cannot be used, or not for this answer.
            Unavailable: the model gives no score now; ask again later.
        """
        key = (namespace, sha256)
        turn = self._turns.setdefault(namespace, asyncio.Lock())
        async with turn:
            if (unusable := self._unusable.get(key)) is not None:
                raise unusable.with_traceback(None)
            self._busy.add(key)
            try:
                scorer = await self._scorer(key)
                reply = await scorer.ask(question, answer, SCORE_SECONDS)
            except Ended as error:  # of this question: it says nothing about the next one
                raise NoScoreYet(f"reward model {sha256[:12]}: {error}") from None
            finally:
                self._idle(key)
        value = reply.get("score")
        if not isinstance(value, float):
            raise NoScore(str(reply.get("refused", "the reward model gave no score")))
        return min(1.0, max(0.0, value))

    async def close(self) -> None:
        """Ends all processes."""
        for scorer in list(self._alive.values()):
            await scorer.end()

    async def _scorer(self, key: Key) -> Scorer:
        alive = self._alive.get(key)
        if alive is not None and alive.usable:
            self._alive.move_to_end(key)
            return alive
        self._forget(key)
        name = f"reward model {key[1][:12]}"
        try:
            content = await self._fetch(*key, MOST_BYTES)
        except ApiError as error:
            # Too large it stays; one that is missing may be uploaded yet.
            if error.status == 413:
                raise self._remembered(key, NoScore(f"{name}: {error.message}")) from None
            if error.status == 404:
                raise self._remembered(key, NoScoreYet(f"{name}: {error.message}")) from None
            raise
        await self._place(key, needed(content.size), name)
        try:
            scorer = self._alive[key] = await Scorer.start(self._taken[key])
            ready = await scorer.load(content.size, content.chunks, LOAD_SECONDS)
        except Ended as error:
            raise self._remembered(key, NoScoreYet(f"{name}: {error}")) from None
        except OSError as error:
            raise NoScoreYet(f"{name}: no process can be started ({error.strerror})") from None
        if not ready.get("ready"):
            await scorer.end()
            raise self._remembered(key, NoScore(f"{name} cannot be used: {ready.get('refused', 'it says nothing')}"))
        return scorer

    async def _place(self, key: Key, need: int, name: str) -> None:
        """Takes a place among the processes; an idle process ends for it where necessary.

        Raises:
            NoScoreYet: it never fits this container's memory, or all places are in use.
        """
        room = self._room()
        if need > room:
            message = (
                f"{name} needs {need >> 20} MiB of memory, and the memory limit of the data plane's pod leaves "
                f"{max(0, room) >> 20} MiB: raise dataPlane.resources.limits.memory, or train a smaller model"
            )
            raise self._remembered(key, NoScoreYet(message))
        gone = self._make_room(key, need, room)
        if gone is None:
            raise NoScoreYet(f"{name}: all places for reward models are in use; the score follows later")
        for scorer in gone:
            await scorer.end()

    def _make_room(self, key: Key, need: int, room: int) -> list[Scorer] | None:
        """Takes a place, and returns the idle processes that end for it. None: nothing was done, all are busy."""
        stay = dict(self._taken)
        idle = [other for other in self._alive if other not in self._busy]
        gone: list[Key] = []
        while len(stay) >= MOST_PROCESSES or sum(stay.values()) + need > room:
            if len(gone) == len(idle):
                return None
            gone.append(idle[len(gone)])
            del stay[gone[-1]]
        self._taken = stay | {key: need}
        return [self._alive.pop(other) for other in gone]

    def _idle(self, key: Key) -> None:
        """Ends a question. A process that cannot be used any more gives up its place."""
        self._busy.discard(key)
        scorer = self._alive.get(key)
        if scorer is None or not scorer.usable:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        self._alive.pop(key, None)
        self._taken.pop(key, None)

    def _remembered(self, key: Key, why: NoScore | NoScoreYet) -> NoScore | NoScoreYet:
        self._unusable[key] = why
        return why


class Preferred(EvaluatorType):
    """The episode's task is the question, its output the answer."""

    name: ClassVar[str] = "reward-model"

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """Probability that people prefer the output to a middling answer of those that the model learned from."""
        if tools.scorer is None or spec.reward_model is None:
            return Score(None, "reward models are not scored here")
        if not case.task:
            return Score(None, "the episode has no task: a reward model reads it as the question")
        sha256 = spec.reward_model.sha256
        try:
            value = await tools.scorer(sha256, case.task, as_text(case.output))
        except NoScore as error:
            return Score(None, str(error)[:500])
        return Score(value, f"reward model {sha256[:12]} gives {value:.3f}")
