"""Limits: one heavy task per agent, slots and requests under way by namespace, a rate of episodes, large work."""

import asyncio
import math
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar

from cachetools import LRUCache

from learnloop_dataplane import config, errors
from learnloop_dataplane.metrics import Metrics

RETRY_SECONDS = 10


class OneEach:
    """Refuses a second heavy task of an agent, and more than a few of all agents. Enter it before taking a connection.

    Args:
        what: the work, as a refusal names it.
        at_once: tasks of all agents at the same time.
    """

    def __init__(self, what: str, at_once: int) -> None:
        self._what = what
        self._at_once = at_once
        self._busy: set[tuple[str, str]] = set()

    @contextmanager
    def turn(self, namespace: str, agent: str) -> Iterator[None]:
        """Wraps the work for one agent; raises ApiError 429."""
        busy = (namespace, agent) in self._busy
        if busy or len(self._busy) >= self._at_once:
            whose = "this agent" if busy else f"{self._at_once} agents"
            message = f"{self._what} of {whose} is under way; send it again after {RETRY_SECONDS} s"
            field, value = ("agent_id", agent) if busy else (None, None)
            raise errors.ApiError(429, message, field=field, value=value, retry_after=RETRY_SECONDS)
        self._busy.add((namespace, agent))
        try:
            yield
        finally:
            self._busy.discard((namespace, agent))


class FairPlaces:
    """A semaphore shared by namespaces. Use it from one event loop at a time.

    Args:
        at_once: how many places there are. With more than one, a namespace has all but one of them at most, so another
            namespace's first request never waits.
        most_waiting: requests of a namespace that may wait; more are refused. None: no limit.
    """

    def __init__(self, at_once: int, most_waiting: int | None = None) -> None:
        self._at_once, self._most_waiting = at_once, most_waiting
        self._most = max(1, at_once - 1)
        self._requests: Counter[str] = Counter()
        """Requests that hold a place or wait for one."""
        self._own: dict[str, asyncio.Semaphore] = {}
        self._all = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def of(self, namespace: str) -> AsyncIterator[None]:
        """Holds a place, once one is free; raises ApiError 429 where too many wait."""
        waiting = self._requests[namespace] - self._most
        if self._most_waiting is not None and waiting >= self._most_waiting:
            raise errors.ApiError(429, f"{waiting} requests of {namespace} wait; send it again later", retry_after=1)
        if not self._own:
            self._all = asyncio.Semaphore(self._at_once)  # one that nothing waits for has no event loop yet
        own = self._own.setdefault(namespace, asyncio.Semaphore(self._most))
        self._requests[namespace] += 1
        try:
            # Each queue is served in order. A namespace stands in the common one with as many as it may have.
            async with own, self._all:
                yield
        finally:
            self._requests[namespace] -= 1
            if not self._requests[namespace]:
                del self._requests[namespace], self._own[namespace]


_KEY = "learnloop.namespace"


class RequestShare:
    """Counts requests by authenticated namespace; `most` 0: no limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way: Counter[str] = Counter()

    def enter(self, scope: MutableMapping[str, Any], namespace: str) -> None:
        """Counts the request of this ASGI scope, once however often it is called.

        Raises:
            ApiError: 429, the namespace has as many under way as it may.
        """
        if _KEY in scope:
            return
        if self._most and self._under_way[namespace] >= self._most:
            raise errors.ApiError(
                429,
                f"namespace {namespace} has {self._most} requests under way, the most it may have "
                "(dataPlane.requestsPerNamespace of the chart); send fewer at a time",
                retry_after=1,
            )
        scope[_KEY] = namespace
        self._under_way[namespace] += 1

    def leave(self, scope: MutableMapping[str, Any]) -> None:
        """Ends the request; does nothing for one that was never counted."""
        namespace = scope.pop(_KEY, None)
        if namespace is None:
            return
        self._under_way[namespace] -= 1
        if not self._under_way[namespace]:
            del self._under_way[namespace]


BURST_SECONDS = 10.0
MOST_NAMESPACES = 10_000
"""The namespace that was quiet longest has its whole burst again, so it need not be remembered."""


class EpisodeRate:
    """A token bucket for each namespace of this replica."""

    def __init__(self, quotas: config.Quotas, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._quotas, self._metrics, self._clock = quotas, metrics, clock
        self._left: LRUCache[str, tuple[float, float]] = LRUCache(MOST_NAMESPACES)

    def admit(self, namespace: str) -> None:
        """Counts one episode; raises ApiError 429 after too many in the last seconds."""
        limit = self._quotas.of(namespace).episodes_per_second
        if limit is None:
            return
        now, most = self._clock(), max(1.0, limit * BURST_SECONDS)
        left, since = self._left.get(namespace, (most, now))
        left = min(most, left + (now - since) * limit)
        self._left[namespace] = (left - 1 if left >= 1 else left, now)
        if left < 1:
            self._metrics.count("quota_refusals", namespace, "episodes")
            raise errors.ApiError(
                429,
                f"namespace {namespace} sends more than {limit:g} episodes a second "
                "(dataPlane.quotas.episodesPerSecond of the chart); send it again later, or ask for more",
                retry_after=max(1, math.ceil((1 - left) / limit)),
            )


Result = TypeVar("Result")
LARGE_BYTES = 32 * 1024
"""Below, the work takes less than some milliseconds, and a thread would cost as much."""
AT_ONCE = 2
body_bytes: ContextVar[int] = ContextVar("body_bytes", default=0)
"""Size of the body of the request that is being served."""
_threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="large-work")
_places = FairPlaces(AT_ONCE)


def is_large() -> bool:
    """True while a request with a large body is served."""
    return body_bytes.get() >= LARGE_BYTES


async def in_thread_if_large(namespace: str, work: Callable[..., Result], *arguments: object) -> Result:
    """The result of `work`: computed in a thread where the request's body is large, immediately otherwise."""
    return await in_thread(namespace, work, *arguments) if is_large() else work(*arguments)


async def in_thread(namespace: str, work: Callable[..., Result], *arguments: object) -> Result:
    context = copy_context()
    async with _places.of(namespace):
        return await asyncio.get_running_loop().run_in_executor(_threads, partial(context.run, work, *arguments))


async def started_apart(program: str, *arguments: str, **environment: str) -> Process:
    """The process, with pipes for its input and output. Of this process's environment, which has keys and addresses, it
    gets the path of Python's modules alone.

    Raises:
        OSError: it cannot be started.
    """
    return await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={"PATH": "", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        cwd="/",
    )


@asynccontextmanager
async def process_apart(program: str, *arguments: str, **environment: str) -> AsyncIterator[Process]:
    """As `started_apart` while the block lasts; then the process is killed. Raises OSError."""
    process = await started_apart(program, *arguments, **environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
