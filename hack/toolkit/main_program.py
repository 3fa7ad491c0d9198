"""The top of each program here: what ends it early also ends what it has started, and its last line is the reason."""

import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

from toolkit.commands import CommandFailed
from toolkit.errors import Refusal
from toolkit.work_groups import EVERYTHING, Ended

FAILED = 2
INTERRUPTED = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_SECONDS = 0.2
CLEANING_SECONDS = 120.0
"""How long an interrupted program may take for what it does last: a cluster's node is stopped in a few seconds."""


class _Interrupted(BaseException):
    """The user, or the system, asked this program to end."""


def run_as_program(name: str, work: Callable[[], int]) -> int:
    """Do the work. Returns its exit status, 2 when it failed, 130 when it was interrupted."""
    outcome: list[int] = []

    done = threading.Event()

    def do() -> None:
        try:
            outcome.append(_status(name, work))
        finally:
            done.set()

    # The work runs in a thread of its own, so that no interrupt cuts it between two lines: it learns by its programs
    # ending under it, and cleans up.
    worker = threading.Thread(target=do, name="work", daemon=True)
    for number in SIGNALS:
        signal.signal(number, _interrupt)
    try:
        worker.start()
        # The system may deliver a signal to any thread, and this one, which answers it, notices only when it wakes up.
        # An event, for Thread.join takes a thread for ended once an interrupt has cut a join of it short.
        while not done.wait(LOOK_SECONDS):
            pass
    except _Interrupted as error:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # once is enough: what follows has its time limits
        EVERYTHING.end()
        cleaned = done.wait(CLEANING_SECONDS)
        late = f"it was still cleaning up after {CLEANING_SECONDS:.0f} s: look at what it has left"
        left = "what it had started has been ended" if cleaned else late
        print(f"{name}: interrupted by {error}; {left}", file=sys.stderr, flush=True)
        return INTERRUPTED
    return outcome[0] if outcome else FAILED


def _interrupt(number: int, _: FrameType | None) -> None:
    raise _Interrupted(signal.Signals(number).name)


def _status(name: str, work: Callable[[], int]) -> int:
    try:
        return work()
    except Ended:
        return INTERRUPTED
    except Exception as error:
        if not isinstance(error, (Refusal, CommandFailed, TimeoutError, OSError)):
            traceback.print_exc()  # a mistake of ours: the reason alone would not lead to it
        *context, reason = str(error).splitlines() or [type(error).__name__]
        for line in context:
            print(line, file=sys.stderr)
        print(f"{name}: {reason}", file=sys.stderr, flush=True)
        return FAILED
