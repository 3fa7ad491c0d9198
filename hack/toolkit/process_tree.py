"""A program and everything it has started, as the kernel's process table tells it."""

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """One row of the process table; two are the same process if pid and start are, whatever else has changed."""

    pid: int
    born: int
    """Its start in clock ticks after the machine's: a pid that is given away again has another one."""
    parent: int = field(compare=False)
    session: int = field(compare=False)
    cpu_ticks: int = field(compare=False)
    ended: bool = field(compare=False)
    """With all its threads: those of a program that was killed may outlive its first, with its ports."""


def family(pid: int) -> set[Process]:
    """The process, its descendants, and who else is in the sessions these have opened."""
    everybody = _everybody()
    members = {pid}
    sessions = {pid}
    grown = True
    while grown:
        joining = {
            process.pid
            for process in everybody.values()
            if process.pid not in members and (process.parent in members or process.session in sessions)
        }
        members |= joining
        sessions |= {number for number in joining if everybody[number].session == number}
        grown = bool(joining)
    return {everybody[number] for number in members if number in everybody}


def alive(process: Process) -> bool:
    """Whether this very process still runs; one that ended and waits to be collected does not."""
    now = _read(process.pid)
    return now is not None and now.born == process.born and not now.ended


def running(pid: int) -> bool:
    """Whether the process that has this pid now still runs."""
    now = _read(pid)
    return now is not None and not now.ended


def bytes_read(pid: int) -> int:
    """Bytes that the process has read from files, pipes and sockets; 0 where the kernel does not tell us."""
    try:
        first = Path(f"/proc/{pid}/io").read_text().split(maxsplit=2)
    except OSError:
        return 0
    return int(first[1])


def _everybody() -> dict[int, Process]:
    processes = (_read(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return {process.pid: process for process in processes if process}


def _read(pid: int) -> Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # proc_pid_stat(5): the name may hold blanks and parentheses, so the fields are counted from behind it.
    fields = text.rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])
    return Process(pid, int(fields[19]), int(fields[1]), int(fields[3]), ticks, fields[0] == "Z" and fields[17] == "1")
