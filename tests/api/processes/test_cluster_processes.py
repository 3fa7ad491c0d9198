"""The processes of a local cluster, found again by what they carry."""

import time
from pathlib import Path

from cluster.processes import Daemon, Processes
from cluster.state_folder import State

BECOMING = '[ "$1" = 0 ] && exec sleep 60; exec /bin/sh -c "$0" "$0" $(($1 - 1))'
"""Becomes another program so many times, one after the other: each time its environment is empty for a moment."""


def test_a_daemon_is_there_from_its_start_on_also_while_it_becomes_another_program(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.run.mkdir()
    state.logs.mkdir()
    processes = Processes(state)
    try:
        processes.ensure(Daemon("daemon", ("/bin/sh", "-c", BECOMING, BECOMING, "1000")))
        looks_end = time.monotonic() + 1.0
        while time.monotonic() < looks_end:
            processes.require("daemon")
    finally:
        processes.stop_descendants()
