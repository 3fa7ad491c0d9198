"""A process that was stopped for too long ends before it does anything more, whatever it was about to do."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from learnloop_operator.adapters.leadership.dead_man_switch import STATUS

BUSY = """
import os, sys, threading
from learnloop_operator.adapters.leadership import dead_man_switch
dead_man_switch.install()
thread = threading.Thread(target=lambda: (dead_man_switch.keep_off(), threading.Event().wait()), daemon=True)
thread.start()
dead_man_switch.wind_up(float(sys.argv[1]))
number, file = 0, os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
while True:
    number += 1
    os.pwrite(file, b"%020d" % number, 0)
"""


PAUSES = (0.0, 0.003, 0.011, 0.027)


def begun(file: Path, seconds: float) -> subprocess.Popen[bytes]:
    """A process that writes without end and has so many seconds."""
    process = subprocess.Popen([sys.executable, "-c", BUSY, str(seconds), str(file)])
    while not file.exists() or not file.read_bytes():
        time.sleep(0.001)
    return process


def stopped(process: subprocess.Popen[bytes]) -> bool:
    """Whether it could be stopped before its time was over; a busy machine may be slower."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return process.poll() is None


def test_a_stopped_process_ends_without_one_more_write_when_it_is_continued_too_late(tmp_path: Path) -> None:
    late = 0
    for number in range(16):
        # A busy machine may take longer to stop it than it has: then it gets more.
        file, seconds = tmp_path / str(number), 0.2 * 4**late
        process = begun(file, seconds)
        try:
            time.sleep(PAUSES[number % len(PAUSES)])
            if not stopped(process):
                late += 1
                continue
            written = file.read_bytes()
            time.sleep(seconds)
            process.send_signal(signal.SIGCONT)
            assert process.wait(60) == STATUS
            assert file.read_bytes() == written
        finally:
            process.kill()
            process.wait()
        if number - late == len(PAUSES) - 1:
            return
    pytest.fail("no process could be stopped in time")


@pytest.mark.parametrize(("last", "then", "ends"), [(0.0, 0.1, 0), (0.05, 60.0, STATUS)])
def test_who_winds_the_switch_up_in_time_lives_on(last: float, then: float, ends: int) -> None:
    code = (
        "import time\nfrom learnloop_operator.adapters.leadership import dead_man_switch\ndead_man_switch.install()\n"
        "for _ in range(5):\n    dead_man_switch.wind_up(30.0)\n    time.sleep(0.01)\n"
        f"dead_man_switch.wind_up({last})\ntime.sleep({then})\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == ends
