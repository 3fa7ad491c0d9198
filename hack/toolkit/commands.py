"""Running other programs: quietly when they work, with the end of their output when they fail.

Each runs in a session of its own and belongs to the current work group, which ends it with all it has started.
"""

import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from toolkit import process_tree
from toolkit.progress import Step
from toolkit.work_groups import Ended, WorkGroup, current

TAIL_LINES = 15
GRACE_SECONDS = 5.0
LOOK_SECONDS = 10.0
"""How often a silent program's processor time and reading are looked at."""
IDLE_MINUTES = 10.0
"""A program that for so long neither says, computes nor reads anything hangs. LEARNLOOP_IDLE_MINUTES overrides it."""
ALIVE_SHARE = 0.002
"""Of that time, what it must have computed to count as alive: a waiting program uses less."""
ALIVE_BYTES = 4096


class CommandFailed(Exception):
    """A program ended with an error. The text holds the end of its output; its last line says which it was, and why."""


@dataclass(frozen=True)
class Answer:
    """The output of a program that has ended."""

    code: int
    out: str
    err: str


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> str:
    """Run a program to its end and return what it wrote to stdout.

    Raises CommandFailed when it cannot be started, exits with an error or hangs, Ended when its group was ended.
    """
    answer = ask(command, cwd=cwd, env=env, stdin=stdin, grace_seconds=grace_seconds)
    if answer.code:
        lines = (answer.out + answer.err).splitlines()
        raise CommandFailed(_describe(command, f"ended with {answer.code}", lines))
    return answer.out


def ask(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> Answer:
    """Run a program to its end, whatever its exit status.

    Raises CommandFailed when it cannot be started or hangs, Ended when its group was ended.
    """
    out: list[str] = []
    err: list[str] = []
    given = None if stdin is None else stdin.encode()
    write = None if given is None else lambda stream: stream.write(given)
    code = _execute(command, cwd, env, write, out.append, err.append, grace_seconds)
    return Answer(code, "".join(out), "".join(err))


def succeeds(command: Sequence[str | Path]) -> bool:
    """Whether the program exists and exits with 0."""
    try:
        run(command)
    except CommandFailed:
        return False
    return True


def follow(
    command: Sequence[str | Path],
    step: Step | None = None,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    on_line: Callable[[str], object] | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> str:
    """Run a long program; its latest line becomes the step's heartbeat, each line goes to `on_line`.

    Returns what it printed. Raises CommandFailed when it cannot be started, exits with an error or hangs, Ended when
    its group was ended.
    """
    lines: list[str] = []

    def collect(line: str) -> None:
        lines.append(line)
        if step and line.strip():
            step.detail = f"line {len(lines)}: {line.strip()[:80]}"
        if on_line:
            on_line(line.rstrip("\n"))

    code = _execute(command, cwd, env, None, collect, None, grace_seconds)
    if code:
        raise CommandFailed(_describe(command, f"ended with {code}", lines))
    return "".join(lines)


def feed(command: Sequence[str | Path], write: Callable[[IO[bytes]], object]) -> None:
    """Run a program that reads what `write` writes; one that hangs up early is let speak for itself.

    Raises CommandFailed when it cannot be started, exits with an error or hangs, Ended when its group was ended.
    """
    lines: list[str] = []
    code = _execute(command, None, None, write, lines.append, None, GRACE_SECONDS)
    if code:
        raise CommandFailed(_describe(command, f"ended with {code}", lines))


def _execute(
    command: Sequence[str | Path],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    write: Callable[[IO[bytes]], object] | None,
    on_out: Callable[[str], object],
    on_err: Callable[[str], object] | None,
    grace_seconds: float,
) -> int:
    """Returns the exit status. Without `on_err` both streams go to `on_out`."""
    group = current()
    process = _start(group, command, cwd, env, write is not None, on_err is not None, grace_seconds)
    last_output = [time.monotonic()]
    try:
        readers = [_reader(process.stdout, on_out, last_output)]
        if on_err is not None:
            readers.append(_reader(process.stderr, on_err, last_output))
        if write is not None and process.stdin is not None:
            with suppress(BrokenPipeError), process.stdin:
                write(process.stdin)
        code = _wait(process, last_output, command)
    except BaseException:
        _end(process, grace_seconds)
        raise
    finally:
        group.remove(process)
    for reader in readers:
        reader.join(timeout=5)  # a daemon that it has started may hold the stream open
    if code and group.ended:
        raise Ended
    return code


def _start(
    group: WorkGroup,
    command: Sequence[str | Path],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    fed: bool,
    apart: bool,
    grace_seconds: float,
) -> "subprocess.Popen[bytes]":
    arguments = [str(part) for part in command]
    group.check()
    try:
        process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE if fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if apart else subprocess.STDOUT,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise CommandFailed(f"{arguments[0]}: not found on this machine") from error
    try:
        group.add(process, grace_seconds)
    except Ended:
        _end(process, grace_seconds)
        raise
    return process


def _reader(stream: IO[bytes] | None, on_line: Callable[[str], object], last_output: list[float]) -> threading.Thread:
    assert stream is not None

    def read() -> None:
        for line in stream:
            last_output[0] = time.monotonic()
            on_line(line.decode(errors="replace"))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def _wait(process: "subprocess.Popen[bytes]", last_output: list[float], command: Sequence[str | Path]) -> int:
    limit = 60 * float(os.environ.get("LEARNLOOP_IDLE_MINUTES") or IDLE_MINUTES)
    enough_ticks = max(1.0, limit * ALIVE_SHARE * os.sysconf("SC_CLK_TCK"))
    usage = (0, 0)
    with _ending(process) as ending:
        while not ending.poll(1000 * min(LOOK_SECONDS, limit / 4)):
            now = _work(process)
            # Both numbers fall when a child has ended: a change either way is a sign of life.
            if abs(now[0] - usage[0]) >= enough_ticks or abs(now[1] - usage[1]) >= ALIVE_BYTES:
                last_output[0], usage = time.monotonic(), now
            if time.monotonic() - last_output[0] > limit:
                what = f"hangs: for {limit / 60:g} minutes it neither printed, computed nor read anything"
                raise CommandFailed(_describe(command, f"{what} (LEARNLOOP_IDLE_MINUTES allows more)", []))
    return process.wait()


def _end(process: "subprocess.Popen[bytes]", grace_seconds: float) -> None:
    alone = WorkGroup()
    alone.add(process, grace_seconds)
    alone.end()


@contextmanager
def _ending(process: "subprocess.Popen[bytes]") -> Iterator[select.poll]:
    """Something to poll that is ready once the process has ended."""
    descriptor = os.pidfd_open(process.pid)
    try:
        ending = select.poll()
        ending.register(descriptor, select.POLLIN)
        yield ending
    finally:
        os.close(descriptor)


def _work(process: "subprocess.Popen[bytes]") -> tuple[int, int]:
    """The usage of it and its children so far: ticks of processor time, bytes."""
    members = process_tree.family(process.pid)
    return sum(member.cpu_ticks for member in members), sum(process_tree.bytes_read(member.pid) for member in members)


def _describe(command: Sequence[str | Path], what: str, output: Sequence[str]) -> str:
    lines = [line.rstrip() for line in output if line.strip()]
    tail = [f"    {line}" for line in lines[-TAIL_LINES:]]
    reason = f": {lines[-1].strip()[:300]}" if lines else ""
    name = " ".join(str(part) for part in command)[:200]
    return "\n".join([*tail, f"`{name}` {what}{reason}"])
