"""A process of the local cluster has ended once all its threads have."""

import subprocess
import sys

from testing.waiting import until
from toolkit.process_tree import running

OUTLIVED = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_still_lives() -> None:
    with subprocess.Popen([sys.executable, "-c", OUTLIVED]) as process:
        until(lambda: _state(process.pid) == "Z")
        assert running(process.pid)
        process.kill()
        until(lambda: not running(process.pid))


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
