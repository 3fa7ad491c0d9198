"""What the process asks of Python's and the C library's memory management, once everything is imported."""

import ctypes
import gc
import sys

COLLECT_AFTER = (20_000, 20, 50)
"""Python's own thresholds (700, 10, 10) look through everything that lives for each few requests' worth of objects:
a pause of tens of milliseconds for all who wait. Requests make no cycles, and what makes some is small."""
_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD, _M_ARENA_MAX = -3, -1, -8  # malloc.h
LARGE_BYTES = 256 * 1024


def settle() -> None:
    """Modules and models stay for good, so nobody looks through them again; large arrays go back when they go.

    glibc raises the size from which it gives memory back with each larger piece that is freed, and opens another arena
    for each thread: both keep tens of MiB of a process that unpacks many large answers. Elsewhere this changes nothing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            for setting, value in (
                (_M_MMAP_THRESHOLD, LARGE_BYTES),
                (_M_TRIM_THRESHOLD, 4 * LARGE_BYTES),
                (_M_ARENA_MAX, 2),
            ):
                libc.mallopt(setting, value)
            libc.malloc_trim(0)
