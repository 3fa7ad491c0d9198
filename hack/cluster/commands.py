"""Running other programs: quietly when they work, with the end of their output when they fail."""

import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from cluster.progress import Step

TAIL_LINES = 15


class CommandFailed(Exception):
    """A program ended with an error; the text holds its command line and the end of its output."""


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
) -> str:
    """Run a program to its end and return what it wrote to stdout.

    Raises CommandFailed when it cannot be started or exits with an error.
    """
    arguments = [str(part) for part in command]
    try:
        result = subprocess.run(arguments, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CommandFailed(f"{arguments[0]}: not found on this machine") from error
    if result.returncode:
        raise CommandFailed(_describe(arguments, result.returncode, (result.stdout + result.stderr).splitlines()))
    return result.stdout


def succeeds(command: Sequence[str | Path]) -> bool:
    """Whether the program exists and exits with 0."""
    try:
        run(command)
    except CommandFailed:
        return False
    return True


def follow(
    command: Sequence[str | Path],
    step: Step,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a long program; its latest output line becomes the step's heartbeat.

    Raises CommandFailed when it cannot be started or exits with an error.
    """
    arguments = [str(part) for part in command]
    lines: list[str] = []
    try:
        process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        raise CommandFailed(f"{arguments[0]}: not found on this machine") from error
    assert process.stdout is not None
    reader = threading.Thread(target=_collect, args=(process.stdout, lines, step), daemon=True)
    reader.start()
    code = process.wait()
    reader.join(timeout=5)
    if code:
        raise CommandFailed(_describe(arguments, code, lines))


def _collect(stream: IO[str], lines: list[str], step: Step) -> None:
    for line in stream:
        if text := line.strip():
            lines.append(text)
            step.detail = f"line {len(lines)}: {text[:80]}"


def _describe(arguments: Sequence[str], code: int, output: Sequence[str]) -> str:
    tail = "\n".join(f"    {line}" for line in output[-TAIL_LINES:])
    return f"`{' '.join(arguments)[:300]}` ended with {code}:\n{tail}"
