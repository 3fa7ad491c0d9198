"""Code that is made to cheat: it looks for its tests, equals everything, writes results itself. It earns nothing."""

import json
import subprocess
import sys

import pytest

from learnloop_dataplane.sandbox.job import judge, read_tests
from learnloop_dataplane.sandbox.limited_run import VARIABLE, RunCase

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these limits are Linux's")
TESTS = read_tests(
    [
        {"call": "f", "args": [1], "returns": 2},
        {"call": "f", "args": [1], "returns": 2.5},
        {"call": "f", "args": [1], "returns": [3]},
        {"call": "f", "args": [2], "returns": {"a": 7}},
        {"call": "f", "args": [3], "returns": True},
        {"call": "f", "args": [4], "raises": "KeyError"},
    ]
)
LIAR = """
class Liar(dict):
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
for name in "eq ne lt le gt ge contains".split():
    setattr(Liar, f"__{name}__", lambda self, *other: True)
for name in "sub rsub add radd abs round mul truediv float int index".split():
    setattr(Liar, f"__{name}__", lambda self, *other: 0)
"""
SAYS = "import json, os\ndef f(x):\n    for pipe in range(3, 12):\n        try: os.write(pipe, {})\n"
SAYS += "        except OSError: pass\n    os._exit(0)\n"
PASSED = b'{"results": [], "passed": 6, "tests": 6, "note": ""}\n'
FORGED = {
    "reports by itself": SAYS.format(PASSED),
    "is like everything": f"{LIAR}\ndef f(x): return Liar()",
    "is an int that is like everything": "class Liar(int):\n    def __eq__(self, other): return True\n"
    "    __hash__ = int.__hash__\ndef f(x): return Liar(9)",
    "changes the runner": "import sys\nm = sys.modules['__main__']\nm._called = m._raised = lambda *a: 'true'\n"
    "def f(x): return 0",
    "reads the stack for what is expected": "import sys\ndef f(x):\n    frame = sys._getframe()\n    found = []\n"
    "    while frame:\n        found += [v for v in frame.f_locals.values() if isinstance(v, (int, float))]\n"
    "        frame = frame.f_back\n    return found",
    "reads the environment and the input": "import os\ndef f(x): return [dict(os.environ), os.read(0, 10**6).decode()]",
    "writes to all that its runner has open": "import os\ndef f(x):\n    for pipe in range(12):\n        try: "
    f"os.write(os.open(f'/proc/{{os.getppid()}}/fd/{{pipe}}', 1), {PASSED!r})\n        except OSError: pass\n",
    "returns another thing than JSON": "def f(x): return float('nan')",
}
WRITTEN = (
    [0, {"passed": True}],
    [0, True],
    [-1, {"returned": 2}],
    [10**9, {"returned": 2}],
    [True, {"returned": 2}],
    [0, {"returned": 2, "raised": "KeyError"}, 1],
    {"passed": 6},
    ["returned", 2],
)
"""Lines that no honest process writes."""


def results_of(code: str):
    calls = [[test.call, test.args, test.kwargs] for test in TESTS]
    environment = {VARIABLE: RunCase(code, calls, 5, 64).written()}
    command = [sys.executable, "-I", "-B", "-m", "learnloop_dataplane.sandbox.limited_run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout.splitlines()[-1])["results"]


@pytest.mark.parametrize("how", FORGED)
def test_code_that_cheats_passes_no_test(how: str) -> None:
    passed, note = judge(TESTS, results_of(FORGED[how]))
    assert passed == 0, note


@pytest.mark.parametrize("line", WRITTEN, ids=json.dumps)
def test_code_that_writes_results_of_its_own_passes_no_test(line) -> None:
    passed, note = judge(TESTS, results_of(SAYS.format(json.dumps(line).encode() + b"\n")))
    assert passed == 0, note


def test_of_several_results_of_one_call_the_last_one_counts() -> None:
    guesses = b"".join(b'[0, {"returned": %d}]\n' % number for number in range(10))
    assert judge(TESTS, results_of(SAYS.format(guesses)))[0] == 0


def test_an_answer_without_end_or_bottom_passes_no_test() -> None:
    for written in ("b'9' * 10**7", "b'[' * 10**6", "b'[0, {\"returned\": ' + b'[' * 10**5 + b']' * 10**5 + b'}]'"):
        assert judge(TESTS, results_of(SAYS.format(written)))[0] == 0


@pytest.mark.parametrize("results", [None, "6", {"0": 2}, [], [1] * 6, [{}] * 6, [{"returned": 2}] * 10_000])
def test_a_report_of_another_shape_earns_what_its_results_are_worth(results) -> None:
    assert judge(TESTS, results)[0] == (1 if isinstance(results, list) and len(results) > 6 else 0)
