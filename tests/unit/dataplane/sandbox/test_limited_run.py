"""Hostile code in a process with limits: it is held off, ends in time, and earns nothing."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from learnloop_dataplane.sandbox.job import judge, read_tests
from learnloop_dataplane.sandbox.limited_run import LONGEST, VARIABLE, RunCase, TooLong

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these limits are Linux's")
TESTS = [{"call": "f", "args": [1], "returns": 2}, {"call": "f", "kwargs": {"x": 2}, "returns": 3}]
SECRET = "not for you"


def score(code: str, tests=TESTS) -> dict:
    """The verdict on what a Job says, and that it said it in time."""
    cases = read_tests(tests)
    calls = [[test.call, test.args, test.kwargs] for test in cases]
    environment = {VARIABLE: RunCase(code, calls, 2, 64).written(), "TOKEN": SECRET}
    command = [sys.executable, "-I", "-B", "-m", "learnloop_dataplane.sandbox.limited_run"]
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert time.monotonic() - began < 30
    assert len(done.stdout) < 2**18
    assert SECRET not in done.stdout
    answer = json.loads(done.stdout)
    passed, note = judge(cases, answer["results"])
    return {"passed": passed, "tests": len(cases), "note": f"{note}; {answer['note']}"}


def test_good_code_passes_and_half_good_code_passes_half() -> None:
    assert score("def f(x): return x + 1") == {"passed": 2, "tests": 2, "note": "2 of 2 tests passed; "}
    half = score("def f(x): return 2")
    assert (half["passed"], half["tests"]) == (1, 2)
    assert "test 2: f returned 2" in half["note"]


@pytest.mark.parametrize(
    ("code", "test"),
    [
        (
            "def f(*, a, b=2): return {'sum': a + b, 'pair': (a, b)}",
            {"kwargs": {"a": 1}, "returns": {"sum": 3, "pair": [1, 2]}},
        ),
        ("def f(): return 0.1 + 0.2", {"returns": 0.3}),
        ("def f(): return 3.0", {"returns": 3}),
        ("async def f(): return None", {"returns": None}),
        ("def f(): raise KeyError('x')", {"raises": "KeyError"}),
        ("class Odd(Exception): pass\ndef f(): raise Odd", {"raises": "Odd"}),
        ("def f(text): print(text); return text", {"args": ["é\n"], "returns": "é\n"}),
        ("class P:\n    def __init__(self, x): self.x = x\ndef f(): return vars(P(1))", {"returns": {"x": 1}}),
    ],
)
def test_honest_code_passes(code: str, test: dict) -> None:
    result = score(code, [{"call": "f", **test}])
    assert result["passed"] == 1, result


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", True), ("True", 1), ("'1'", 1), ("[1, 2]", [2, 1]), ("None", 0), ("{1}", [1]), ("{}", []), ("1.001", 1)],
)
def test_another_value_is_no_pass(value: str, expected) -> None:
    assert score(f"def f(): return {value}", [{"call": "f", "returns": expected}])["passed"] == 0


HOSTILE = {
    "never ends": "def f(x):\n    while True: pass",
    "sleeps": "import time\ndef f(x): time.sleep(1000)",
    "forks without end": "import os\ndef f(x):\n    while True:\n        try: os.fork()\n        except OSError: pass",
    "leaves a session behind": "import os, time\nif not os.fork():\n    os.setsid()\n    time.sleep(10)\n"
    "def f(x): return 0",
    "writes without end": "def f(x):\n    while True: print('x' * 100000)",
    "reports without end": "import os\ndef f(x):\n    while 1:\n        for n in range(9): os.write(n, b'[0]' * 999)",
    "takes all memory": "def f(x): return len(bytearray(10**9))",
    "ends immediately": "import os\nos._exit(0)",
    "ends politely": "raise SystemExit(0)",
    "signals everybody": "import os, signal\ndef f(x): os.kill(os.getppid(), signal.SIGKILL); return 0",
    "is not Python": "def f(x: return",
    "fills the disk": "def f(x):\n    with open('/tmp/learnloop-filled', 'w') as one:\n        one.write('x' * 10**8)",
    "dies": "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)",
}


@pytest.mark.parametrize("how", HOSTILE)
def test_hostile_code_earns_nothing_and_ends_in_time(how: str) -> None:
    if how == "signals everybody" and os.geteuid():
        pytest.skip("in a container the process is the first one, which no signal from within reaches")
    result = score(HOSTILE[how])
    assert (result["passed"], result["tests"]) == (0, 2), result
    filled = Path("/tmp/learnloop-filled")
    if filled.exists():
        assert filled.stat().st_size <= 2**20
        filled.unlink()


def test_the_environment_is_not_the_judged_codes_to_read() -> None:
    tests = [{"call": "seen", "returns": []}]
    own = score("import os\ndef seen(): return [one for one in os.environ if one == 'TOKEN']", tests)
    assert own["passed"] == 1


@pytest.mark.parametrize(
    "given",
    [
        "def test_f(): pass",
        [],
        {},
        3,
        "[" * 100_000,
        [{"call": "f"}],
        [{"call": "os.system", "returns": 1}],
        [{"call": "f", "returns": 1, "raises": "E"}],
        [{"call": "f", "returns": 1, "more": 2}],
        [{"call": "f", "returns": 1}] * 201,
    ],
    ids=lambda given: str(given)[:40],
)
def test_invalid_tests_are_refused_with_their_form(given) -> None:
    with pytest.raises(ValueError, match="invalid tests: "):
        read_tests(given)


def test_a_case_too_long_for_a_job_is_refused_before_there_is_one() -> None:
    assert RunCase.read(RunCase("a", [["f", [1], {}]], 1, 64).written()) == RunCase("a", [["f", [1], {}]], 1, 64)
    with pytest.raises(TooLong, match=f"{LONGEST} fit"):
        RunCase(os.urandom(100_000).hex(), [], 1, 64).written()
