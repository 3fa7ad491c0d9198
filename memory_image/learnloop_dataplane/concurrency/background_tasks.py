"""Background work that never ends: a pass that fails is logged, counted and tried again, and /readyz names it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from learnloop_common.process_end import causes
from learnloop_dataplane.concurrency.cancellation import cancel
from learnloop_dataplane.errors import StoreAway, Unavailable
from learnloop_dataplane.metrics import Metrics

log = logging.getLogger(__name__)
FIRST_SECONDS = 0.25
AWAY_SECONDS = 2.0
"""The longest wait for a store that does not answer: asking costs little, and what waits for it is somebody's work."""
FAILED_SECONDS = 30.0
"""The longest wait after anything else: nobody knows what it was, so it may well happen again."""


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
        self.failing: dict[str, str] = {}
        """Work whose last pass failed, and the kind of error: anybody may read it, and what an error says may be data.
        A store that is away is no failure of the work."""

    def once(self, work: Awaitable[None], name: str) -> None:
        """Runs until it ends by itself or with the process; what it raises is logged and counted."""
        self._tasks.append(asyncio.create_task(self._watched(work, name), name=name))

    def repeat(self, one_pass: Callable[[], Awaitable[object]], name: str, pause: float = 0.0) -> None:
        """Runs one pass after the other, `pause` seconds between them, whatever any of them raises."""
        self._tasks.append(asyncio.create_task(self._forever(one_pass, name, pause), name=name))

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
        """Stops everything."""
        await cancel(self._tasks)

    async def _watched(self, work: Awaitable[None], name: str) -> None:
        try:
            await work
        except Exception:  # nobody awaits this task: unlogged, its end would go unnoticed
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
                if _is_told_to_stop(error):
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


def _is_told_to_stop(error: BaseException) -> bool:
    """A future that a library cancelled raises the same as a task that is to end; only the latter was asked to."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
