"""Waiting for a lock file in view of the user, and not longer than the work it is for."""

import fcntl
import time
from typing import IO

from toolkit.progress import say
from toolkit.work_groups import current

PAUSE_SECONDS = 0.2


def acquire(lock: IO[str], notice: str) -> None:
    """Take the lock on an open file, after saying `notice` if somebody else has it. Raises Ended."""
    group = current()
    waited = False
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not waited:
                say(notice)
            waited = True
        group.check()
        time.sleep(PAUSE_SECONDS)
