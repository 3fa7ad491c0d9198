"""`linter`: how clean the code of an output is. The code is read as data by a process of its own and never run."""

import asyncio
import os
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
LARGEST_ANSWER = 8 * 2**20
# Nothing of this machine's settings, and nothing that the code says about itself: a `noqa` would buy a better score.
_COMMAND = ("check", "--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--quiet", "--output-format", "json")
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
            answer = await _run(program, settings, code)
        if answer is None:
            return Score(None, f"ruff gave no answer within {SECONDS:g} s")
        codes = [str(item.get("code") or "invalid-syntax") for item in answer]
        if "invalid-syntax" in codes:
            return Score(0.0, "the output is no Python")
        told = f"{len(codes)} findings in {lines} lines of code" + (f", first {codes[0]}" if codes else "")
        return Score(max(0.0, 1.0 - len(codes) / lines / settings.tolerance), told)


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
    try:
        found, _ = await asyncio.wait_for(process.communicate(code.encode()), SECONDS)
        answer = orjson.loads(found) if len(found) <= LARGEST_ANSWER else None
    except (TimeoutError, ValueError, OSError):
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return answer if isinstance(answer, list) and all(isinstance(item, dict) for item in answer) else None


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
