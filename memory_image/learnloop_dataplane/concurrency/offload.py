"""Work away from the event loop: threads for large bodies, and separate processes."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TypeVar

from learnloop_dataplane.concurrency.limits import FairPlaces

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
    if not is_large():
        return work(*arguments)
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
