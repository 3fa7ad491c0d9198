"""What is asked for at the same time is done in one go: while one batch is under way, the next one collects."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

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
