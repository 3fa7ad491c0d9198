"""Hostile code in a process with limits: it is held off, ends in time, leaves nothing behind, and earns nothing."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from learnloop_dataplane.sandbox.cases import LONGEST, VARIABLE, RunCase, TooLong

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and filters are Linux's")
TESTS = "from solution import f\ndef test_one():\n    assert f(1) == 2\ndef test_two():\n    assert f(2) == 3\n"
SECRET = "not for you"


def told(code: str, tests: str = TESTS) -> dict[str, object]:
    """What a Job would say, and that it said it in time and left no process behind."""
    environment = {VARIABLE: RunCase(code, tests, 2, 64).written(), "TOKEN": SECRET}
    command = [sys.executable, "-I", "-B", "-m", "learnloop_dataplane.sandbox.limited_run"]
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert time.monotonic() - began < 30
    assert len(done.stdout) < 2000
    assert SECRET not in done.stdout
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_good_code_passes_and_half_good_code_passes_half() -> None:
    assert told("def f(x): return x + 1") == {"passed": 2, "tests": 2, "note": "2 of 2 tests passed"}
    half = told("def f(x): return 2")
    assert (half["passed"], half["tests"]) == (1, 2)
    assert "test_two" in str(half["note"])


def test_cases_of_unittest_count_each() -> None:
    tests = (
        "import unittest\nfrom solution import f\nclass Both(unittest.TestCase):\n"
        "    def test_one(self): self.assertEqual(f(1), 2)\n"
        "    def test_two(self): self.assertEqual(f(1), 3)\n"
        "    @unittest.skip('later')\n    def test_three(self): pass\n"
    )
    found = told("def f(x): return x + 1", tests)
    assert (found["passed"], found["tests"]) == (1, 3), "what is skipped has not passed"


HOSTILE = {
    "never ends": "def f(x):\n    while True: pass",
    "sleeps": "import time\ndef f(x): time.sleep(1000)",
    "forks without end": "import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass",
    "leaves a session behind": "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(1000)\n"
    "def f(x): return 0",
    "writes without end": "def f(x):\n    while True: print('x' * 100000)",
    "reports without end": "import os\ndef f(x):\n    while True: os.write(3, b'+ x\\n' * 1000)",
    "takes all memory": "def f(x): return len(bytearray(10**9))",
    "ends at once": "import os\nos._exit(0)",
    "ends politely": "raise SystemExit(0)",
    "signals everybody": "import os, signal\ndef f(x): os.kill(os.getppid(), signal.SIGKILL); return 0",
    "is no Python": "def f(x: return",
    "fills the disk": "def f(x):\n    with open('/tmp/learnloop-filled', 'w') as one:\n        one.write('x' * 10**8)",
    "dies": "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)",
}


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_code_earns_nothing_and_leaves_nothing(how: str) -> None:
    if how == "signals everybody" and os.geteuid():
        pytest.skip("in a container the process is the first one, which no signal from within reaches")
    found = told(HOSTILE[how])
    assert (found["passed"], found["tests"]) == (0, 2), found
    assert not judged(), "processes of the judged code are left"
    filled = Path("/tmp/learnloop-filled")
    if filled.exists():
        assert filled.stat().st_size <= 2**20
        filled.unlink()


def judged() -> list[int]:
    """Processes of judged code that were begun by this one, or are nobody's child."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
            if not any(name in command for name in (b".judged_code_process", b".untrusted_test_process")):
                continue
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent in (1, os.getpid()):
            found.append(int(folder.name))
    return found


def test_the_environment_is_not_the_judged_codes_to_read() -> None:
    tests = "from solution import seen\ndef test_seen():\n    assert not seen(), seen()\n"
    own = told("import os\ndef seen(): return [one for one in os.environ if one == 'TOKEN']", tests)
    assert own["passed"] == 1
    reading = "import os\ndef seen(): return open(f'/proc/{os.getppid()}/environ', 'rb').read()"
    parents = told(reading, tests)
    assert "PermissionError" in str(parents["note"])
    memory = told("import os\ndef seen(): return open(f'/proc/{os.getppid()}/mem', 'rb')", tests)
    assert "PermissionError" in str(memory["note"])


def test_there_are_no_sockets() -> None:
    code = (
        "import socket\nfrom learnloop_dataplane.sandbox.confinement import confine\nconfine(5, 2**30)\n"
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):\n"
        "    try: socket.socket(family)\n    except PermissionError: print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == ["refused"] * 3, done.stderr


def test_tests_that_are_none_are_said_to_be_none() -> None:
    assert told("x = 1", "def check(): pass")["tests"] == 0
    assert "no Python" in str(told("x = 1", "def (")["note"])


def test_a_case_too_long_for_a_job_is_refused_before_there_is_one() -> None:
    assert RunCase.read(RunCase("a", "b", 1, 64).written()) == RunCase("a", "b", 1, 64)
    with pytest.raises(TooLong, match=f"{LONGEST} fit"):
        RunCase(os.urandom(100_000).hex(), "b", 1, 64).written()
