"""`linter`: how clean the code of an output is. The code is read as data by a process of its own and never run."""

import asyncio
import contextlib
import os
import re
import resource
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import orjson

from learnloop_api.kinds.evaluators import Evaluator
from learnloop_api.kinds.evaluators import Linter as Settings
from learnloop_dataplane.evaluators.evaluator import Case, EvaluatorType, Score, Tools, as_text

SECONDS = 10.0
AT_ONCE = 2
"""Linters at a time: the processor is everybody's."""
MEBIBYTES = 128
"""Of data; the worst code of the longest length that has an end to it takes half of them."""
# Nothing of this machine's settings, and nothing that the code says about itself: a `noqa` would buy a better score.
# How often each rule is broken, not where: 260,000 characters can have 130,000 findings, of 1 KiB each.
_COMMAND = (
    *("check", "--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--quiet"),
    *("--statistics", "--output-format", "json"),
)
_ACTION = re.compile(r"(#[ \t]*(?:ruff[ \t]*:[ \t]*)?isort[ \t]*):")
"""`# isort: skip_file` is no `noqa`, and does the same."""
_places = asyncio.Semaphore(AT_ONCE)


class Linter(EvaluatorType):
    """Findings of ruff for each line of code. Blank lines and comments are none: padding makes nothing cleaner."""

    name: ClassVar[str] = "linter"
    slow: ClassVar[bool] = True

    async def score(self, spec: Evaluator, case: Case, tools: Tools) -> Score:
        """1 - findings per line / tolerance, at least 0; 0 for what is no Python."""
        settings = spec.linter or Settings()
        program, code = ruff(), as_text(case.output)
        if program is None:
            return Score(None, "ruff is not installed here")
        lines = sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in code.splitlines())
        if not lines:
            return Score(0.0, "there is no line of code")
        async with _places:
            answer = await _run(program, settings, _ACTION.sub(r"\1;", code))
        if answer is None:
            return Score(None, f"ruff was stopped: this code takes it more than {SECONDS:g} s or {MEBIBYTES} MiB")
        counts = {str(item.get("code") or "invalid-syntax"): _count(item) for item in answer}
        if "invalid-syntax" in counts:
            return Score(0.0, "the output is no Python")
        found = sum(counts.values())
        told = f"{found} findings in {lines} lines of code"
        if counts:
            told += f", most of them {max(counts, key=counts.__getitem__)}"
        return Score(max(0.0, 1.0 - found / lines / settings.tolerance), told)


def _count(item: dict[str, object]) -> int:
    count = item.get("count")
    return count if isinstance(count, int) else 1


async def _run(program: str, settings: Settings, code: str) -> list[dict[str, object]] | None:
    select = ("--select", ",".join(settings.select), "--stdin-filename", "solution.py", "-")
    process = await asyncio.create_subprocess_exec(
        program,
        *_COMMAND,
        *select,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": "", "RAYON_NUM_THREADS": "1"},
        cwd="/",
    )
    _limit(process.pid)
    try:
        found, _ = await asyncio.wait_for(process.communicate(code.encode()), SECONDS)
        if process.returncode:
            return None
        answer = orjson.loads(found or b"[]")
    except (TimeoutError, ValueError, OSError):
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return answer if isinstance(answer, list) and all(isinstance(item, dict) for item in answer) else None


def _limit(process: int) -> None:
    """Before it has read a byte: whatever it does, memory fails it, and not its neighbours."""
    with contextlib.suppress(OSError):
        resource.prlimit(process, resource.RLIMIT_DATA, (MEBIBYTES << 20, MEBIBYTES << 20))
        resource.prlimit(process, resource.RLIMIT_CORE, (0, 0))


@lru_cache(maxsize=1)
def ruff() -> str | None:
    """Where the program is; None where it is not installed."""
    try:
        from ruff.__main__ import find_ruff_bin  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    try:
        program = Path(os.fsdecode(find_ruff_bin()))
    except FileNotFoundError:
        return None
    return str(program) if program.is_file() else None
