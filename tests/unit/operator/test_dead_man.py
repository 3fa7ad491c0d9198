"""A process that was stopped for too long ends before it does anything more, whatever it was about to do."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from learnloop_operator.adapters.dead_man import STATUS

BUSY = """
import os, sys, threading
from learnloop_operator.adapters import dead_man
dead_man.install()
thread = threading.Thread(target=lambda: (dead_man.keep_off(), threading.Event().wait()), daemon=True)
thread.start()
dead_man.wind_up(float(sys.argv[1]))
number, file = 0, os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
while True:
    number += 1
    os.pwrite(file, b"%020d" % number, 0)
"""


def wait_for(file: Path) -> None:
    while not file.exists() or not file.read_bytes():
        time.sleep(0.005)


@pytest.mark.parametrize("pause", [0.0, 0.003, 0.011, 0.027])
def test_a_stopped_process_ends_without_one_more_write_when_it_is_continued_too_late(
    tmp_path: Path, pause: float
) -> None:
    file = tmp_path / "written"
    process = subprocess.Popen([sys.executable, "-c", BUSY, "1.0", str(file)])
    try:
        wait_for(file)
        time.sleep(pause)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        written = file.read_bytes()
        time.sleep(1.5)
        process.send_signal(signal.SIGCONT)
        assert process.wait(60) == STATUS
        assert file.read_bytes() == written
    finally:
        process.kill()


def test_who_winds_the_switch_up_in_time_lives_on(tmp_path: Path) -> None:
    code = (
        "import time\nfrom learnloop_operator.adapters import dead_man\ndead_man.install()\n"
        "for _ in range(5):\n    dead_man.wind_up(30.0)\n    time.sleep(0.01)\n"
        "dead_man.wind_up(0.2)\ndead_man.wind_up(0)\ntime.sleep(0.5)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0
