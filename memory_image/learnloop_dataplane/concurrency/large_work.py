"""Costly work on the body of one request, in threads: a body of some MiB takes seconds to redact.

The threads are shared fairly by namespaces.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TypeVar

from learnloop_dataplane.concurrency.fair_places import FairPlaces

LARGE_BYTES = 32 * 1024
"""Below, the work takes less than some milliseconds, and a thread would cost as much."""
AT_ONCE = 2
body_bytes: ContextVar[int] = ContextVar("body_bytes", default=0)
"""Size of the body of the request that is being served."""
_threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="large-work")
_places = FairPlaces(AT_ONCE)
Result = TypeVar("Result")


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
