"""Programs that end together: when one of several things done side by side fails, or the user interrupts."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from contextvars import ContextVar

from toolkit.process_tree import Process, alive, family

POLL_SECONDS = 0.05
AFTER_KILL_SECONDS = 5.0


class Ended(Exception):
    """This work was ended because a parallel part failed; the part that ended it knows the reason."""


class WorkGroup:
    """The programs that one piece of work runs just now, those of the pieces inside it included."""

    def __init__(self, parent: "WorkGroup | None" = None) -> None:
        self._parent = parent
        self._lock = threading.Lock()
        self._programs: dict[subprocess.Popen[bytes], float] = {}
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether this group, or one that it is part of, has been ended."""
        return self._ended or (self._parent is not None and self._parent.ended)

    def check(self) -> None:
        """Raise Ended if the group has been ended. Loops that wait for something call it in each round."""
        if self.ended:
            raise Ended

    def add(self, program: "subprocess.Popen[bytes]", grace_seconds: float) -> None:
        """Take in a program that has just been started, with the time it is given to end when asked to.

        Raises Ended if the group has been ended; the starter of the program then ends it.
        """
        with self._lock:
            if self._ended:
                raise Ended
            self._programs[program] = grace_seconds
        if self._parent:
            self._parent.add(program, grace_seconds)

    def remove(self, program: "subprocess.Popen[bytes]") -> None:
        """Forget a program that has ended."""
        with self._lock:
            self._programs.pop(program, None)
        if self._parent:
            self._parent.remove(program)

    def end(self) -> None:
        """End every program with all that it has started, and let none start any more.

        Returns when they are gone: each was asked to end, and killed after its grace.
        """
        with self._lock:
            self._ended = True
            programs = dict(self._programs)
        families: dict[subprocess.Popen[bytes], set[Process]] = {program: set() for program in programs}
        began = time.monotonic()
        while families:
            passed = time.monotonic() - began
            for program, signalled in list(families.items()):
                # Looked for again in each round: a program may have been about to start another one when it was asked.
                left = {member for member in signalled | family(program.pid) if alive(member)}
                program.poll()
                grace = programs[program]
                if not left or passed > grace + AFTER_KILL_SECONDS:  # what no kill ends is stuck in the kernel
                    del families[program]
                elif passed > grace:
                    _signal(left, signal.SIGKILL)
                else:
                    _signal(left - signalled, signal.SIGTERM)
                    signalled |= left
            time.sleep(POLL_SECONDS)


def _signal(members: set[Process], number: signal.Signals) -> None:
    """The children first: a parent that ends early would have them adopted, and lost to later looks."""
    for member in sorted(members, key=lambda process: process.born, reverse=True):
        if alive(member):
            try:
                os.kill(member.pid, number)
            except ProcessLookupError:
                continue


EVERYTHING = WorkGroup()
"""The work that the top of the program ends on an interrupt."""

_current: ContextVar[WorkGroup] = ContextVar("work group", default=EVERYTHING)


def current() -> WorkGroup:
    """The group of the work that runs in this thread."""
    return _current.get()


@contextmanager
def cleaning_up() -> Iterator[None]:
    """A group of its own for what has to be done although, or because, the work around it was ended."""
    token = _current.set(WorkGroup())
    try:
        yield
    finally:
        _current.reset(token)


def side_by_side(*jobs: Callable[[], object]) -> None:
    """Run the jobs at the same time and wait for all of them.

    Raises the first failing job's error immediately; the others are ended first.
    """
    group = WorkGroup(current())

    def work(job: Callable[[], object]) -> None:
        _current.set(group)
        job()

    with ThreadPoolExecutor(max_workers=len(jobs)) as pool:
        try:
            for future in as_completed([pool.submit(work, job) for job in jobs]):
                future.result()
        except BaseException:
            group.end()
            raise
