"""Work away from the event loop: batches of concurrent requests, threads for large bodies, and separate processes."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Generic, TypeVar

from learnloop_dataplane.concurrency.limits import FairPlaces

Item = TypeVar("Item")
Result = TypeVar("Result")


class Together(Generic[Item, Result]):
    """Nobody waits for others to come: a single item goes at once.

    Args:
        run: does a batch of one namespace and returns one result for each item, in their order; what it raises, every
            item of the batch raises. A result that is an exception is raised for its own item only.
        most: items of a batch.
        at_once: batches of one namespace under way.
    """

    def __init__(
        self, run: Callable[[str, Sequence[Item]], Awaitable[Sequence[Result | Exception]]], *, most: int, at_once: int
    ) -> None:
        self._run = run
        self._most = most
        self._at_once = at_once
        self._waiting: dict[str, deque[tuple[Item, asyncio.Future[Result]]]] = defaultdict(deque)
        self._under_way: dict[str, int] = defaultdict(int)
        self._tasks: set[asyncio.Task[None]] = set()

    async def do(self, namespace: str, item: Item) -> Result:
        """The item's own result."""
        if namespace not in self._under_way:
            return await self._alone(namespace, item)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting[namespace].append((item, future))
        if self._under_way[namespace] < self._at_once:
            self._under_way[namespace] += 1
            self._begin(namespace)
        return await future

    async def _alone(self, namespace: str, item: Item) -> Result:
        """Without a task, which costs as much as a batch of one; whoever came meanwhile is next."""
        self._under_way[namespace] += 1
        try:
            [result] = await self._run(namespace, [item])
        finally:
            if self._waiting.get(namespace):
                self._begin(namespace)
            else:
                self._ended(namespace)
        if isinstance(result, Exception):
            raise result
        return result

    def _begin(self, namespace: str) -> None:
        task = asyncio.create_task(self._drain(namespace))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ended(self, namespace: str) -> None:
        self._under_way[namespace] -= 1
        if not self._under_way[namespace]:
            del self._under_way[namespace]
            self._waiting.pop(namespace, None)

    async def _drain(self, namespace: str) -> None:
        waiting = self._waiting[namespace]
        while waiting:
            batch = [waiting.popleft() for _ in range(min(len(waiting), self._most))]
            try:
                results = await self._run(namespace, [item for item, _ in batch])
            except Exception as error:
                results = [error] * len(batch)
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():  # whoever asked has gone
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        self._ended(namespace)


LARGE_BYTES = 32 * 1024
"""Below, the work takes less than some milliseconds, and a thread would cost as much."""
AT_ONCE = 2
body_bytes: ContextVar[int] = ContextVar("body_bytes", default=0)
"""Size of the body of the request that is being served."""
_threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="large-work")
_places = FairPlaces(AT_ONCE)


def is_large() -> bool:
    """Does the request that is being served have a large body?"""
    return body_bytes.get() >= LARGE_BYTES


async def in_thread_if_large(namespace: str, work: Callable[..., Result], *arguments: object) -> Result:
    """The result of `work`: computed in a thread where the request's body is large, immediately otherwise."""
    if not is_large():
        return work(*arguments)
    context = copy_context()
    async with _places.of(namespace):
        return await asyncio.get_running_loop().run_in_executor(_threads, partial(context.run, work, *arguments))


async def started_apart(program: str, *arguments: str, folder: str = "/", **environment: str) -> Process:
    """The process, with pipes for its input and output. It gets nothing of this process's environment, which has keys
    and addresses: only where Python's modules are, and what is given by name.

    Raises:
        OSError: it cannot be started.
    """
    modules = os.pathsep.join(filter(None, sys.path))
    return await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env={"PATH": "", "PYTHONPATH": modules, **environment},
        cwd=folder,
    )


@asynccontextmanager
async def process_apart(program: str, *arguments: str, **environment: str) -> AsyncIterator[Process]:
    """The same for as long as the block lasts; then it is killed, unless it has ended. Raises OSError."""
    process = await started_apart(program, *arguments, **environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
