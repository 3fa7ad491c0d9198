"""The process in which the tests run: told by its standard input, it reports each test on a pipe of its own.

Started by `limited_run` with nothing of its environment. The code they judge runs in another process, and is asked by
what stands for it as the module `solution`. So it reads no test, changes none, and writes no report. Tests may be an
agent's own, which is why the other side counts them by itself.
"""

import builtins
import functools
import os
import sys
import types
import unittest
from collections.abc import Callable
from typing import Any

from learnloop_dataplane.sandbox.confinement import confine, hide
from learnloop_dataplane.sandbox.handles import Borrowed, Handle, show
from learnloop_dataplane.sandbox.peer import Peer

NAMES = ("solution", "test_solution")


class Solution(types.ModuleType):
    """The code, as the tests import it."""

    def __init__(self, code: Handle, peer: Peer) -> None:
        super().__init__(NAMES[0])
        vars(self).update(_code=code, _peer=peer)

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [name for name in self._peer.ask("names", self._code) if isinstance(name, str) and not taken(name)]
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._code, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        else:
            setattr(self._code, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._code, name)


def taken(name: str) -> bool:
    """Names that `from solution import *` leaves to the tests: code that brings an `abs` of its own decides nothing."""
    known = name in vars(builtins) or name in sys.stdlib_module_names
    return known or name.startswith("_") or name in vars(sys.modules[NAMES[1]])


def main() -> None:
    """Arguments: seconds, bytes of memory, the user to become or 0, descriptors of the report and of the code's pipes.

    Input: code and tests, each with its length.
    """
    seconds, memory, user, report, reading, writing = (int(text) for text in sys.argv[1:7])
    code, tests = (sys.stdin.buffer.read(int(sys.stdin.buffer.readline())).decode() for _ in NAMES)
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    hide()  # before the first line of the code runs
    confine(seconds, memory)
    borrowed = Borrowed()
    borrowed.peer = Peer(reading, writing, borrowed, borrowed.raised, borrowed.answer, show=show)
    module = types.ModuleType(NAMES[1])
    sys.modules[NAMES[1]] = module
    tell = functools.partial(_tell, report)
    if not tell(NAMES[0], lambda: _load(borrowed.peer, code), passed=False):
        return
    if not tell(NAMES[1], lambda: exec(compile(tests, f"{NAMES[1]}.py", "exec"), module.__dict__), passed=False):
        return
    for name, found in list(vars(module).items()):
        if name.startswith("test_") and isinstance(found, types.FunctionType):
            tell(name, found)
        elif issubclass(type(found), type) and issubclass(found, unittest.TestCase):
            for test in unittest.defaultTestLoader.getTestCaseNames(found):
                tell(f"{name}.{test}", functools.partial(_run, found(test)))


def _load(peer: Peer, code: str) -> None:
    sys.modules[NAMES[0]] = Solution(peer.ask("load", code), peer)


def _run(case: unittest.TestCase) -> None:
    """Raises AssertionError with the first lines of what failed."""
    result = unittest.TestResult()
    case.run(result)
    if not result.wasSuccessful() or result.skipped or not result.testsRun:
        told = [text for _, text in (*result.failures, *result.errors)] or ["skipped"]
        raise AssertionError(told[0].strip().splitlines()[-1])


def _tell(report: int, name: str, test: Callable[[], Any], *, passed: bool = True) -> bool:
    """Whether it ended well; a failure is reported, and a success where it is a test's."""
    line = f"+ {name}" if passed else ""
    try:
        test()
    except BaseException as error:  # whatever the code and the tests raise, SystemExit too
        line = f"- {name}: {type(error).__name__}: {error}"
    if line:
        os.write(report, f"{' '.join(line.split())[:300]}\n".encode(errors="replace"))
    return not line.startswith("-")


if __name__ == "__main__":
    main()
