"""Reward models of tenants: each in a process of its own, as many as fit the memory of the container."""

import asyncio
import contextlib
import os
import resource
import sys
from asyncio.subprocess import Process
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import orjson
from cachetools import TTLCache

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_dataplane.concurrency.limits import FairPlaces, started_apart
from learnloop_dataplane.errors import ApiError, Unavailable
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, as_text

SMALLEST = 160 * 2**20
"""Bytes of a process without its weights: Python with onnxruntime and tokenizers writes to 67 MiB before any model, the
rest is for what a model computes on the way."""
TIMES = 5
"""A model's file in memory: three times were measured (read, parsed, the weights), the rest is for what it computes."""
MOST_BYTES = 128 * 2**20
"""Of one model; a larger one is not used."""
AT_ONCE = 4
"""Processes, each for one model of one namespace."""
LOAD_SECONDS = 60.0
SCORE_SECONDS = 15.0
REMEMBER_SECONDS = 60.0
"""For so long an unusable model is not fetched again."""
MOST_REMEMBERED = 1000
LIMIT = Path("/sys/fs/cgroup/memory.max")
Fetch = Callable[[str, str, int], Awaitable[Any]]
"""A namespace's artifact by digest, of at most so many bytes: its `size` and `chunks`. Raises ApiError: there is none,
or it is larger."""
Key = tuple[str, str]


class NoScore(Exception):
    """The model can never score this answer; the message says why."""


class NoScoreYet(Unavailable):
    """The score is missing for now; the message says why. Try again later."""

    def __init__(self, message: str) -> None:
        ApiError.__init__(self, 503, message, retry_after=5)


def needed(model_bytes: int) -> int:
    """Bytes that the process of a model of this size may write to."""
    return SMALLEST + TIMES * model_bytes


def left() -> int:
    """Bytes for all reward models together: seven eighths of the container's, less the most that this process had."""
    text = LIMIT.read_text().strip() if LIMIT.exists() else ""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = min(machine, int(text)) if text.isdecimal() else machine
    return limit - limit // 8 - resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Scorer:
    """Asks one process, one question at a time. Any error ends it, so that no answer stays unread."""

    def __init__(self, process: Process, name: str, need: int) -> None:
        self.process, self._name, self.need = process, name, need

    @property
    def usable(self) -> bool:
        return self.process.returncode is None

    async def ask(self, sent: AsyncIterator[bytes], seconds: float) -> dict[str, Any]:
        """The answer to what is sent. Raises NoScoreYet: there is none, which says nothing about the next question."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                async for part in sent:
                    self.process.stdin.write(part)
                    await self.process.stdin.drain()
                return dict(orjson.loads(await self.process.stdout.readline()))
        except BaseException as error:
            self.kill()
            await self.process.wait()
            if isinstance(error, TimeoutError):
                raise NoScoreYet(f"{self._name}: it gave no answer within {seconds:g} s") from None
            if isinstance(error, ValueError | OSError):
                raise NoScoreYet(f"{self._name}: its process ended") from None
            raise

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Scorers:
    """Of all namespaces. A namespace sees its own artifacts alone, and two namespaces never share a process.

    Args:
        fetch: what reads artifacts.
        room: bytes of memory for all processes together, at this moment.
    """

    def __init__(self, fetch: Fetch, room: Callable[[], int] = left) -> None:
        self._fetch, self._room = fetch, room
        self._starting = asyncio.Lock()
        self._places = FairPlaces(AT_ONCE)
        self._alive: OrderedDict[Key, Scorer] = OrderedDict()
        """The least recently used first. It is changed between two awaits, so that no lock is needed for it."""
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
        async with turn, self._places.of(namespace):
            if (unusable := self._unusable.get(key)) is not None:
                raise unusable.with_traceback(None)
            self._busy.add(key)
            try:
                scorer = self._alive.get(key)
                if scorer is None or not scorer.usable:
                    scorer = await self._load(key, f"reward model {sha256[:12]}")
                self._alive.move_to_end(key)
                reply = await scorer.ask(_question(question, answer), SCORE_SECONDS)
            finally:
                self._busy.discard(key)
                if key in self._alive and not self._alive[key].usable:
                    del self._alive[key]
        if not isinstance(value := reply.get("score"), float):
            raise NoScore(str(reply.get("refused", "the reward model gave no score")))
        return min(1.0, max(0.0, value))

    async def close(self) -> None:
        for key in list(self._alive):
            await self._end(key)

    async def _load(self, key: Key, name: str) -> Scorer:
        try:
            content = await self._fetch(*key, MOST_BYTES)
        except ApiError as error:
            # Too large it stays; one that is missing may be uploaded yet.
            if error.status not in (404, 413):
                raise
            refusal = (NoScore if error.status == 413 else NoScoreYet)(f"{name}: {error.message}")
            self._unusable[key] = refusal
            raise refusal from None
        need = needed(content.size)
        arguments = "-m", "learnloop_dataplane.evaluators.scorer_process", str(need)
        async with self._starting:
            await self._make_room(key, need, name)
            try:
                process = await started_apart(sys.executable, *arguments, OMP_NUM_THREADS="1")
            except OSError as error:
                raise NoScoreYet(f"{name}: no process can be started ({error.strerror})") from None
            scorer = self._alive[key] = Scorer(process, name, need)
        try:
            ready = await scorer.ask(_model(content), LOAD_SECONDS)
        except NoScoreYet as error:
            self._unusable[key] = error
            raise
        if not ready.get("ready"):
            await self._end(key)
            self._unusable[key] = NoScore(f"{name} cannot be used: {ready.get('refused', 'it says nothing')}")
            raise self._unusable[key]
        return scorer

    async def _make_room(self, key: Key, need: int, name: str) -> None:
        """Ends idle processes until there is memory for another one. Raises NoScoreYet where there is not enough."""
        while (room := self._room()) < need or len(self._alive) >= AT_ONCE or self._taken() + need > room:
            idle = next((other for other in self._alive if other not in self._busy), None)
            if idle is None or room < need:
                refusal = NoScoreYet(
                    f"{name} needs {need >> 20} MiB of memory; {max(0, room) >> 20} MiB are for all reward models: the "
                    "score follows later, or raise dataPlane.resources.limits.memory"
                )
                if room < need:
                    self._unusable[key] = refusal
                raise refusal
            await self._end(idle)

    def _taken(self) -> int:
        return sum(scorer.need for scorer in self._alive.values())

    async def _end(self, key: Key) -> None:
        scorer = self._alive.pop(key)
        scorer.kill()
        await scorer.process.wait()


async def _question(question: str, answer: str) -> AsyncIterator[bytes]:
    yield orjson.dumps([question, answer]) + b"\n"


async def _model(content: Any) -> AsyncIterator[bytes]:
    yield content.size.to_bytes(8, "big")
    async for chunk in content.chunks:
        yield chunk


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
