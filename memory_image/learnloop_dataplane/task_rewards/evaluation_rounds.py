"""Turns of namespaces beside one another: none waits for what an evaluator of another one takes."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from learnloop_dataplane.concurrency.cancellation import cancel

AT_ONCE = 4
"""Whose episodes are evaluated at the same time."""


class EvaluationRounds:
    """Gives each namespace a turn, again and again.

    Args:
        namespaces: all there are.
        turn: evaluates in one namespace, for a bounded time; it raises nothing.
    """

    def __init__(self, namespaces: Callable[[], Awaitable[list[str]]], turn: Callable[[str], Awaitable[None]]) -> None:
        self._namespaces = namespaces
        self._turn = turn
        # First come, first served: who had a turn is behind all others.
        self._places = asyncio.Semaphore(AT_ONCE)
        self._turns: dict[str, asyncio.Task[None]] = {}

    async def begin(self) -> None:
        """A turn for each namespace that has none, and waits for none of them.

        Raises:
            Exception: whatever `namespaces` raises.
        """
        for namespace in await self._namespaces():
            if namespace not in self._turns:
                task = self._turns[namespace] = asyncio.create_task(
                    self._placed(namespace), name=f"evaluate {namespace}"
                )
                task.add_done_callback(partial(self._ended, namespace))

    async def close(self) -> None:
        """Breaks off all turns."""
        await cancel(list(self._turns.values()))

    def _ended(self, namespace: str, _: asyncio.Task[None]) -> None:
        self._turns.pop(namespace, None)

    async def _placed(self, namespace: str) -> None:
        async with self._places:
            await self._turn(namespace)
