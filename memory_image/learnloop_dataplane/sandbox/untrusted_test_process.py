"""The process in which judged code runs: told by its standard input, it reports each test on its own pipe.

Started by `limited_run` with nothing of its environment. Whatever happens here is the judged code's: it may end, hang,
or lie about tests that share its process, which is why the other side counts the tests by itself.
"""

import functools
import os
import sys
import types
import unittest
from collections.abc import Callable
from typing import Any

from learnloop_dataplane.sandbox.confinement import confine

PIPE = 3
NAMES = ("solution", "test_solution")


def main() -> None:
    """Arguments: seconds, bytes of memory, the user to become or 0. Input: code and tests, each with its length."""
    seconds, memory, user = (int(text) for text in sys.argv[1:4])
    sources = [sys.stdin.buffer.read(int(sys.stdin.buffer.readline())).decode() for _ in NAMES]
    if user:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    confine(seconds, memory)
    module = types.ModuleType("empty")
    for name, source in zip(NAMES, sources, strict=True):
        module = types.ModuleType(name)
        sys.modules[name] = module
        try:
            exec(compile(source, f"{name}.py", "exec"), module.__dict__)
        except BaseException as error:
            _report(f"- {name}: {type(error).__name__}: {error}")
            raise SystemExit(1) from None
    for name, found in list(vars(module).items()):
        if name.startswith("test_") and isinstance(found, types.FunctionType):
            _tell(name, found)
        elif isinstance(found, type) and issubclass(found, unittest.TestCase):
            for test in unittest.defaultTestLoader.getTestCaseNames(found):
                _tell(f"{name}.{test}", functools.partial(_run, found(test)))


def _run(case: unittest.TestCase) -> None:
    """Raises AssertionError with the first lines of what failed."""
    result = unittest.TestResult()
    case.run(result)
    if not result.wasSuccessful() or result.skipped or not result.testsRun:
        told = [text for _, text in (*result.failures, *result.errors)] or ["skipped"]
        raise AssertionError(told[0].strip().splitlines()[-1])


def _tell(name: str, test: Callable[[], Any]) -> None:
    try:
        test()
        line = f"+ {name}"
    except BaseException as error:  # whatever the judged code raises, SystemExit too
        line = f"- {name}: {type(error).__name__}: {error}"
    _report(line)


def _report(line: str) -> None:
    os.write(PIPE, f"{' '.join(line.split())[:300]}\n".encode(errors="replace"))


if __name__ == "__main__":
    main()
