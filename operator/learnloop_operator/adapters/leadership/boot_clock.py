"""The clock by which a Lease is counted."""

import time

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def since_boot() -> float:
    """Seconds of a clock that nobody sets and that goes on while the machine sleeps, as everybody else's does.

    Where there is none (not on Linux), the monotonic one: a machine that slept is then behind the others.
    """
    return time.clock_gettime(_BOOTTIME) if _BOOTTIME is not None else time.monotonic()
