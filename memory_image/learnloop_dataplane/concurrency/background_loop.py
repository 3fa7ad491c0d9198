"""The background loop: work of the whole process, work that each namespace has turns of, and first connections.

A pass that fails is logged, counted and tried again, and /readyz names it. A namespace that fails stops no other.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from learnloop_common.termination_message import causes
from learnloop_dataplane.errors import StoreAway, Unavailable
from learnloop_dataplane.metrics import Metrics

log = logging.getLogger(__name__)
FIRST_SECONDS = 0.25
LONGEST_SECONDS = 5.0
"""Longest wait for the first connection."""
AWAY_SECONDS = 2.0
"""Longest wait for a store that does not answer: asking costs little, and somebody's work waits for it."""
FAILED_SECONDS = 30.0
"""Longest wait after any other failure: its cause is unknown, so it may well happen again."""
TURN = 2000
"""Rows that one turn handles of a namespace before the others have theirs: no flood delays them for long."""


class Work:
    """One kind of work, in turns of namespaces: all of them every `every` seconds, and one immediately after `changed`.

    A namespace whose turn did `TURN` rows or more comes again, behind all that wait. It has one turn at a time.

    Args:
        turn: one bounded turn of a namespace; returns how many rows it handled, and raises nothing.
        namespaces: all there are.
        at_once: turns under way, each of another namespace.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        turn: Callable[[str], Awaitable[int]],
        namespaces: Callable[[], Awaitable[list[str]]],
        *,
        every: float,
        at_once: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._turn = turn
        self._namespaces = namespaces
        self._every = every
        self._at_once = at_once
        self._clock = clock
        self._due = clock()
        self._waiting: dict[str, None] = {}  # in order
        self._running: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()

    def changed(self, namespace: str) -> None:
        """There may be work in this namespace."""
        self._waiting.setdefault(namespace)
        self._wake.set()

    async def one_pass(self) -> None:
        """Waits until there is work, and begins as many turns as there are places for.

        Raises:
            Exception: whatever `namespaces` raises; nothing is lost, the next pass asks again.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._due - self._clock())):
                await self._wake.wait()
        if self._clock() >= self._due:
            for namespace in await self._namespaces():
                self._waiting.setdefault(namespace)
            self._due = self._clock() + self._every
        self._wake.clear()
        able = [namespace for namespace in self._waiting if namespace not in self._running]
        for namespace in able[: self._at_once - len(self._running)]:
            del self._waiting[namespace]
            self._running[namespace] = asyncio.create_task(self._taken(namespace))

    async def close(self) -> None:
        await cancel(list(self._running.values()))

    async def _taken(self, namespace: str) -> None:
        try:
            if await self._turn(namespace) >= TURN:
                self._waiting.setdefault(namespace)
        finally:
            del self._running[namespace]
            self._wake.set()


class Background:
    """The tasks of one process.

    Args:
        ready: waited for before the first pass of anything.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        metrics: Metrics,
        ready: asyncio.Event,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._metrics = metrics
        self._ready = ready
        self._sleep = sleep
        self._tasks: list[asyncio.Task[None]] = []
        self._works: list[Work] = []
        self.failing: dict[str, str] = {}
        """Kind of error by work whose last pass failed; its text may be data and stays in the log. A store that is away
        is not a failure of the work."""

    def once(self, work: Awaitable[None], name: str) -> None:
        """Runs until it ends by itself or with the process; what it raises is logged and counted."""
        self._tasks.append(asyncio.create_task(self._watched(work, name), name=name))

    def repeat(self, one_pass: Callable[[], Awaitable[object]], name: str, pause: float = 0.0) -> None:
        """Runs one pass after the other, `pause` seconds between them, whatever any of them raises."""
        self._tasks.append(asyncio.create_task(self._forever(one_pass, name, pause), name=name))

    def turns(self, work: Work, name: str) -> None:
        """Gives namespaces their turns of this work until the process ends."""
        self._works.append(work)
        self.repeat(work.one_pass, name)

    async def attempt(self, step: Callable[[str], Awaitable[int]], namespace: str) -> int:
        """One step for one namespace: its bad data must not stop the others; the next round tries again.

        Returns:
            What the step says it has done; 0 where it failed.
        """
        try:
            return await step(namespace)
        except (Unavailable, StoreAway) as error:
            log.info("work on %s waits: %s", namespace, error)
        except Exception:  # whatever it is, it is one namespace's
            log.exception("work on namespace %s failed", namespace)
            self._metrics.background_failures.labels("a namespace").inc()
        return 0

    async def close(self) -> None:
        await cancel(self._tasks)
        for work in self._works:
            await work.close()

    async def _watched(self, work: Awaitable[None], name: str) -> None:
        try:
            await work
        except Exception:  # no code awaits this task: unlogged, its end would go unnoticed
            log.exception("%s: failed", name)
            self._metrics.background_failures.labels(name).inc()

    async def _forever(self, one_pass: Callable[[], Awaitable[object]], name: str, pause: float) -> None:
        await self._ready.wait()
        wait = FIRST_SECONDS
        while True:
            try:
                await one_pass()
            except (Unavailable, StoreAway) as error:
                log.info("%s: waits: %s", name, error)
                await self._sleep(min(wait, AWAY_SECONDS))
            except (Exception, asyncio.CancelledError) as error:
                if _is_cancelled(error):
                    raise
                log.exception("%s: a pass failed, the next one follows in %.1f s", name, wait)
                self._metrics.background_failures.labels(name).inc()
                self.failing[name] = type(causes(error)[0]).__name__
                await self._sleep(wait)
            else:
                self.failing.pop(name, None)
                wait = FIRST_SECONDS
                await self._sleep(pause)
                continue
            wait = min(2 * wait, FAILED_SECONDS)


def _is_cancelled(error: BaseException) -> bool:
    """A future that a library cancelled raises the same as a task that is to end; only the latter was asked to."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


async def cancel(tasks: Iterable[asyncio.Task[object] | None]) -> None:
    """Cancels until every task has ended.

    Once is not enough: `asyncio.wait_for` of Python 3.11, which asyncpg and nats-py use, swallows a cancellation that
    arrives together with the result it waited for.
    """
    pending = {task for task in tasks if task is not None and not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=0.25)


class Connecting:
    """Connects in the background, again until that succeeds; until then /readyz shows `problem`."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.starting: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()
        self.problem = "the first connection is being made"

    def start(self) -> None:
        self.starting = asyncio.create_task(self._until_connected(), name=self._what)

    async def connect(self) -> None:
        raise NotImplementedError

    async def _until_connected(self) -> None:
        delay = FIRST_SECONDS
        while not self.ready.is_set():
            try:
                await self.connect()
                self.ready.set()
            except Exception as error:  # whatever it is, the next attempt may succeed
                self.problem = short(error)
                log.warning("%s is not usable yet, next attempt in %.1f s: %s", self._what, delay, self.problem)
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_SECONDS)


def short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
