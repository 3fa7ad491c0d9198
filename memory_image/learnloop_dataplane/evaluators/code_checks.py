"""Evaluators of code: a linter without running it, and unit tests in the sandbox."""

import asyncio
import contextlib
import io
import os
import re
import resource
import tokenize
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import orjson

from learnloop_api.kinds import evaluators
from learnloop_dataplane.concurrency.limits import FairPlaces, process_apart
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, as_text
from learnloop_dataplane.sandbox import job, limited_run

SECONDS = 10.0
AT_ONCE = 2
"""Linters at a time in this process."""
MEBIBYTES = 128
"""Limit of data; the most demanding code of the longest length takes half of it."""
# Settings of this machine and `noqa` comments in the code do not count. Findings are counted by rule: 260,000
# characters can have 130,000 findings of 1 KiB each.
_COMMAND = (
    *("check", "--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--quiet"),
    *("--statistics", "--output-format", "json"),
)
_ACTION = re.compile(r"(#[ \t]*(?:ruff[ \t]*:[ \t]*)?isort[ \t]*):")
"""`# isort: skip_file` works as a `noqa` does."""
_places = FairPlaces(AT_ONCE)


class Linter(EvaluatorType):
    """Findings of ruff per statement: a logical line that is more than a comment, a text, `...` or `pass`."""

    name: ClassVar[str] = "linter"

    async def score(self, spec: evaluators.Evaluator, case: Case, tools: Tools) -> Score:
        """1 - findings per statement / tolerance, at least 0; 0 for what is not Python."""
        settings = spec.linter or evaluators.Linter()
        program, code = ruff(), as_text(case.output)
        if program is None:
            return Score(None, "ruff is not installed here")
        chosen = ("--select", ",".join(settings.select), "--stdin-filename", "solution.py", "-")
        async with _places.of(tools.namespace):
            counts = await _findings(program, *_COMMAND, *chosen, code=_ACTION.sub(r"\1;", code))
            statements = await asyncio.to_thread(statements_in, code) if counts is not None else 0
        if counts is None:
            return Score(None, f"the linter was stopped: this code takes more than {SECONDS:g} s or {MEBIBYTES} MiB")
        if "invalid-syntax" in counts:
            return Score(0.0, "the output is not Python")
        if not statements:
            return Score(0.0, "the output has no statement")
        findings = sum(counts.values())
        note = f"{findings} findings in {statements} statements"
        if counts:
            note += f", most of them {max(counts, key=counts.__getitem__)}"
        return Score(max(0.0, 1.0 - findings / statements / settings.tolerance), note)


def statements_in(code: str) -> int:
    """The logical lines of Python that name something: docstrings, `...` and `pass` can have no finding."""
    count, names = 0, False
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            names |= token.type == tokenize.NAME and token.string != "pass"
            if token.type == tokenize.NEWLINE:
                count, names = count + names, False
    except (tokenize.TokenError, SyntaxError):
        return 0
    return count


async def _findings(program: str, *arguments: str, code: str) -> dict[str, int] | None:
    """Findings by rule; None: the linter was stopped."""
    async with process_apart(program, *arguments, RAYON_NUM_THREADS="1") as process:
        _limit(process.pid)
        try:
            output, _ = await asyncio.wait_for(process.communicate(code.encode()), SECONDS)
            answer = orjson.loads(output or b"[]")
        except (TimeoutError, ValueError, OSError):
            return None
    if process.returncode:
        return None
    return {item.get("code") or "invalid-syntax": item.get("count", 1) for item in answer}


def _limit(process: int) -> None:
    """Sets limits before the process reads input, so that running out of memory ends only this process."""
    with contextlib.suppress(OSError):
        resource.prlimit(process, resource.RLIMIT_DATA, (MEBIBYTES << 20, MEBIBYTES << 20))
        resource.prlimit(process, resource.RLIMIT_CORE, (0, 0))


@lru_cache(maxsize=1)
def ruff() -> str | None:
    """The path of the program; None: it is not installed."""
    try:
        from ruff.__main__ import find_ruff_bin  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    try:
        program = Path(os.fsdecode(find_ruff_bin()))
    except FileNotFoundError:
        return None
    return str(program) if program.is_file() else None


class UnitTests(EvaluatorType):
    """Share of the tests that pass. The code runs in the sandbox, and never sees the tests."""

    name: ClassVar[str] = "unit-tests"

    def check(self, spec: evaluators.Evaluator) -> None:
        if spec.unit_tests is not None and spec.unit_tests.tests is not None:
            try:
                job.read_tests(spec.unit_tests.tests)
            except ValueError as error:
                raise Invalid(str(error), field="unitTests.tests") from None

    async def score(self, spec: evaluators.Evaluator, case: Case, tools: Tools) -> Score:
        """0 to 1; 0 for code that hangs, dies or is not Python."""
        settings = spec.unit_tests or evaluators.UnitTests()
        given: Any = settings.tests if settings.tests is not None else case.expected
        if given is None:
            return Score(None, "tests are missing: give them as unitTests.tests, or as the episode's expected output")
        if tools.sandbox is None:
            return Score(None, "no sandbox is configured: have dataPlane.sandbox.enabled set")
        try:
            tests = job.read_tests(given)
            calls = [[test.call, test.args, test.kwargs] for test in tests]
            case_to_run = limited_run.RunCase(as_text(case.output), calls, settings.seconds, settings.memory_megabytes)
            answer = await tools.sandbox.run(case_to_run, tools.namespace)
        except limited_run.TooLong as error:
            return Score(None, str(error))
        except ValueError as error:
            return Score(None, str(error)[:500])
        if answer is None:
            return Score(0.0, "the sandbox was stopped: the code took more memory or time than it has")
        results, why = answer
        passed, note = job.judge(tests, results)
        return Score(passed / len(tests), f"{note}; {why}" if why else note)
