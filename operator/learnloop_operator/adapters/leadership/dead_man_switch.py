"""A dead man's switch: unless it is wound up again in time, the kernel ends this process.

A process that was stopped (SIGSTOP, a frozen cgroup, a debugger) goes on with the instruction it stood at. That may be
the very one that sends a write, and no check before it can help. So the end is a timer of the kernel's, which runs
while the process does not, and whose signal comes before the next instruction of the thread that takes it.
"""

import ctypes
import signal

STATUS = int(signal.SIGALRM)
"""Exit code of a process that the switch has ended."""


def install() -> None:
    """From now on SIGALRM ends the process at once, with exit code STATUS.

    The handler is the C library's `_exit` itself. One of Python's would only leave a note, and the machine code that
    was interrupted would go on to send; and the default action does not exist for the first process of a container.
    """
    library = ctypes.CDLL(None)
    library.signal.argtypes, library.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    library.signal(STATUS, ctypes.cast(library._exit, ctypes.c_void_p))


def wind_up(seconds: float) -> None:
    """End the process after so many seconds, unless told otherwise before; 0: never. From any thread."""
    signal.setitimer(signal.ITIMER_REAL, seconds)


def keep_off() -> None:
    """The calling thread does not take the signal: it comes to those that write."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
