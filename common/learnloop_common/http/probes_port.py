"""A port of its own for probes and metrics, and the background tasks of a server.

No flood of callers takes the probes from kubelet, operator and Prometheus. A server whose background task has ended
must not go on: its probes would stay green while it serves an old routing table or records nothing.
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any

import uvicorn

from learnloop_common import process_end

CONNECTIONS = 64
"""More than a kubelet, an operator and some Prometheus ever have."""


class Beside(uvicorn.Server):
    """A server in the event loop of another, which hears the signals for both."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves them to the other."""
        yield


async def serve_both(
    ours: uvicorn.Server,
    probes: uvicorn.Config | None,
    endless: Mapping[str, Coroutine[Any, Any, None]] | None = None,
    passing: Mapping[str, Coroutine[Any, Any, None]] | None = None,
) -> int:
    """Serve callers until `ours` ends, and probes in the same event loop; return the exit status.

    Args:
        endless: background tasks by name. The end of one, by an exception or not, ends the server with status 1, and
            the reason becomes the termination message.
        passing: tasks that may end; an exception of one ends the server in the same way.
    """
    work = {**(endless or {}), **(passing or {})}
    if probes is not None:
        work["probes"] = Beside(probes).serve()
    status = 0

    async def watched(name: str, coroutine: Coroutine[Any, Any, None]) -> None:
        nonlocal status
        try:
            await coroutine
            if (passing and name in passing) or ours.should_exit:
                return
            process_end.leave(f"{name} ended: the server stops")
        except (Exception, SystemExit) as error:
            process_end.end(error, "" if process_end.says_all(error) else f"{name}: ")
        status, ours.should_exit = 1, True

    tasks = [asyncio.create_task(watched(name, coroutine), name=name) for name, coroutine in work.items()]
    try:
        await ours.serve()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return status
