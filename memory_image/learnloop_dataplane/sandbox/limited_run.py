"""`python -m learnloop_dataplane.sandbox.limited_run`: unit tests of judged code, within limits. The Job's whole work.

The case stands in LEARNLOOP_CASE (see `cases`). The one line of the answer is JSON:
{"passed": 2, "tests": 3, "note": "…"}. The judged code gets neither the environment nor this process' output.
"""

import ast
import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from learnloop_dataplane.sandbox.cases import VARIABLE, RunCase
from learnloop_dataplane.sandbox.confinement import hide

MOST_TOLD = 2**16
NOBODY = 65534
ROUNDS = 200
"""Of stopping what still runs; the judged code has `confinement.PROCESSES` processes at most."""
_OWN_MEMORY = 2**27
"""Bytes of address space that an empty Python takes."""


@dataclass(frozen=True)
class Found:
    """How many of so many tests passed, and one sentence."""

    passed: int
    tests: int
    note: str


def run(case: RunCase) -> Found:
    """Runs the tests; whatever the code does, this ends `case.seconds` after it began, and a moment."""
    try:
        names = _names(case.tests)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Found(0, 0, f"the tests are no Python: {type(error).__name__}")
    if not names:
        return Found(0, 0, "the tests have no function named test_…, and no TestCase with one")
    told, why = _started(case)
    lines = [line for line in told.decode(errors="replace").splitlines() if line[:2] in ("+ ", "- ")]
    passed = {line[2:] for line in lines if line[0] == "+"} & names
    failed = [line[2:] for line in lines if line[0] == "-"]
    if failed:
        why = f"{failed[0]}{f'; {why}' if why else ''}"
    elif not why and len(passed) < len(names):
        why = "the code ended before its tests did"
    return Found(len(passed), len(names), f"{len(passed)} of {len(names)} tests passed{f'; {why}' if why else ''}")


def _names(tests: str) -> set[str]:
    """The tests that there are, read without running them."""
    found: set[str] = set()
    for item in ast.parse(tests).body:
        if isinstance(item, ast.FunctionDef) and item.name.startswith("test_"):
            found.add(item.name)
        elif isinstance(item, ast.ClassDef) and item.bases:
            methods = (one.name for one in item.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {f"{item.name}.{name}" for name in methods if name.startswith("test")}
    return found


def _started(case: RunCase) -> tuple[bytes, str]:
    """What the tests' process told, and why it ended early, if it did. The code's process never sees the tests."""
    told, report = os.pipe()
    questions, asking = os.pipe()
    answers, answering = os.pipe()
    code = _process("judged_code_process", case, (questions, answering), subprocess.DEVNULL)
    process = _process("untrusted_test_process", case, (report, answers, asking), subprocess.PIPE)
    for one in (report, questions, asking, answers, answering):
        os.close(one)
    sources = b"".join(b"%d\n%b" % (len(one), one) for one in (case.code.encode(), case.tests.encode()))
    found, why, end = b"", "", time.monotonic() + case.seconds
    try:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(sources)
        while True:
            left = end - time.monotonic()
            if left <= 0 or not select.select([told], [], [], left)[0]:
                why = f"stopped after {case.seconds} s"
                break
            part = os.read(told, 4096)
            found += part
            if not part:
                break
            if len(found) > MOST_TOLD:
                why = "stopped: it told more than a report has"
                break
    finally:
        _end(code, process)
        os.close(told)
    return found[:MOST_TOLD], why


def _process(module: str, case: RunCase, pipes: tuple[int, ...], given: int) -> "subprocess.Popen[bytes]":
    user = NOBODY if os.geteuid() == 0 else 0
    most = case.memory_megabytes * 2**20 + _OWN_MEMORY
    command = [sys.executable, "-I", "-B", "-m", f"learnloop_dataplane.sandbox.{module}"]
    return subprocess.Popen(
        [*command, *(str(number) for number in (case.seconds, most, user, *pipes))],
        stdin=given,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={"PATH": "", "LC_ALL": "C.UTF-8"},
        cwd="/",
        pass_fds=pipes,
        start_new_session=True,
    )


def _end(*processes: "subprocess.Popen[bytes]") -> None:
    """Kills the two processes and all that they left behind, also what began a session of its own.

    All are stopped first, until none is left that runs: who is only killed may have been copied meanwhile.
    """
    stopped: set[int] = set()
    for _ in range(ROUNDS):
        running = _descendants() - stopped
        if not running:
            break
        for one in running:
            _signal(one, signal.SIGSTOP)
        stopped |= running
    for process in processes:
        process.kill()
        process.wait()
    for one in stopped:
        _signal(one, signal.SIGKILL)
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _signal(process: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def _descendants() -> set[int]:
    """All processes below this one: orphans of the judged code come to it, see `adopt`."""
    found, open_ends = set[int](), [os.getpid()]
    while open_ends:
        one = open_ends.pop()
        for thread in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                children = {int(text) for text in thread.read_text().split()} - found
            except OSError:  # it ended meanwhile
                continue
            found |= children
            open_ends.extend(children)
    return found


def adopt() -> None:
    """Orphans of the judged code come to this process, as they do to the first one of a container.

    Raises:
        OSError: the kernel refuses.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl PR_SET_CHILD_SUBREAPER")


def main() -> None:
    """Prints the answer."""
    case = RunCase.read(os.environ.pop(VARIABLE))
    adopt()
    hide()
    print(json.dumps(asdict(run(case))), flush=True)


if __name__ == "__main__":
    main()
