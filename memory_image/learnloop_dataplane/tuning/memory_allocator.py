"""What the process asks of Python's and the C library's memory management, once everything is imported."""

import asyncio
import ctypes
import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path

from learnloop_dataplane.tuning.switches import SWITCHES

COLLECT_AFTER = (20_000, 20, 50)
"""Python's own thresholds (700, 10, 10) look through everything that lives for each few requests' worth of objects:
a pause of tens of milliseconds for all who wait. Requests make no cycles, and what makes some is small."""
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD, _M_ARENA_MAX = -3, -1, -8  # malloc.h
LARGE_BYTES = 256 * 1024
LOOK_SECONDS = 2.0
GROWN_BYTES = 2 * 2**20


def settle() -> None:
    """Modules and models stay for good, so nobody looks through them again; large arrays go back when they go.

    glibc raises the size from which it gives memory back with each larger piece that is freed, and opens another arena
    for each thread: both keep tens of MiB of a process that unpacks many large answers. Elsewhere this changes nothing.
    The parts `garbage-collection` and `memory-allocator` switch the two off.
    """
    if SWITCHES.is_on("garbage-collection"):
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)
    if (libc := _glibc()) is not None:
        for setting, value in (
            (_M_MMAP_THRESHOLD, LARGE_BYTES),
            (_M_TRIM_THRESHOLD, 4 * LARGE_BYTES),
            (_M_ARENA_MAX, 2),
        ):
            libc.mallopt(setting, value)
        libc.malloc_trim(0)


async def keep_small() -> None:
    """Has glibc give freed pages back each time the process has grown by 2 MiB, until cancelled.

    By itself it gives back what is free at the top of the heap only; what many answers of PostgreSQL were put together
    from lies below what is kept of them: 28 MiB after 100 agents. A trim takes a millisecond, in a thread of its own.
    """
    libc = _glibc()
    if libc is None:
        return
    trim: Callable[[int], int] = libc.malloc_trim
    least = _resident_bytes()
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if _resident_bytes() - least >= GROWN_BYTES:
            await asyncio.to_thread(trim, 0)
            least = _resident_bytes()
        least = min(least, _resident_bytes())


def _glibc() -> ctypes.CDLL | None:
    if not SWITCHES.is_on("memory-allocator"):
        return None
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    return libc if libc is not None and hasattr(libc, "mallopt") else None


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
