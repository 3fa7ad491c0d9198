"""Code that is made to cheat: it looks for its tests, equals everything, and speaks for others. It earns nothing."""

import json
import subprocess
import sys

import pytest

from learnloop_dataplane.sandbox.cases import VARIABLE, RunCase

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and filters are Linux's")
TESTS = """
import math
import unittest
from math import isclose
from solution import *
import solution
def test_equal(): assert solution.f(1) == 2
def test_near(): assert abs(f(1) - 2.5) < 0.1
def test_close(): assert isclose(f(1), 2.5) and math.isclose(f(1), 2.5)
class All(unittest.TestCase):
    def test_almost(self): self.assertAlmostEqual(f(1), 2.5)
    def test_within(self): self.assertIn(3, f(1))
    def test_raises(self):
        with self.assertRaises(Exception): f(1)
        self.assertEqual(f(2), 7)
"""
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
PASSED = b"+ test_equal\n+ test_near\n+ test_close\n+ All.test_almost\n+ All.test_within\n+ All.test_raises\n"
FORGED = {
    "reports by itself": SAYS.format(PASSED),
    "is like everything": f"{LIAR}\ndef f(x): return Liar()",
    "brings the tests' own words": f"{LIAR}\nabs = isclose = math = unittest = Liar()\ndef f(x): return Liar()",
    "names them all": f"{LIAR}\n__all__ = ['f', 'abs', 'isclose', 'math']\nabs = isclose = math = f = Liar()",
    "changes the runner": "import sys\nmain = sys.modules['__main__']\nmain._tell = main._run = lambda *a, **k: True\n"
    "def f(x): return 0",
    "reads the tests' constants": "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
    "        if 'test' in frame.f_code.co_name: return frame.f_code.co_consts[-1]\n        frame = frame.f_back\n",
    "ends the test early": "class _ShouldStop(Exception): __module__ = 'unittest.case'\ndef f(x): raise _ShouldStop",
    "writes to all that others have open": "import os\ndef f(x):\n    for one in os.listdir('/proc'):\n"
    "        for pipe in range(12):\n            try:\n"
    f"                if int(one) != os.getpid(): os.write(os.open(f'/proc/{{one}}/fd/{{pipe}}', 1), {PASSED!r})\n"
    "            except (OSError, ValueError): pass\n",
}
TOLD = (
    ["ask", "call", [-1, ["tuple", []], ["tuple", []]]],
    ["ask", "get", [["function", 0], "x"]],
    ["answer", True, ["object", -5, False], [], ""],
    ["answer", True, ["named", "x); import os; os._exit(0", ["a"], [1]], [], ""],
    ["answer", False, [["shared", "unittest.case", "SkipTest"], [], []], [], ""],
    ["answer", False, [["own", "x", -1, []], [], []], [], ""],
    ["answer", False, [["own", "x", 1, [["shared", "builtins", "SystemExit"]]], [0], []], [], ""],
    ["answer", True, ["new", "Exchange", 0, []], [], ""],
    ["answer", True, ["back", 0], [], ""],
    ["answer"],
    {"passed": 6},
)
"""What no honest process says."""


def told(code: str) -> dict[str, object]:
    environment = {VARIABLE: RunCase(code, TESTS, 5, 64).written()}
    command = [sys.executable, "-I", "-B", "-m", "learnloop_dataplane.sandbox.limited_run"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("how", FORGED)
def test_code_that_cheats_passes_no_test(how: str) -> None:
    found = told(FORGED[how])
    assert (found["passed"], found["tests"]) == (0, 6), found


@pytest.mark.parametrize("message", TOLD, ids=json.dumps)
def test_code_that_speaks_no_protocol_passes_no_test(message: object) -> None:
    written = json.dumps(message).encode()
    found = told(SAYS.format(b"%d\n%b" % (len(written), written)))
    assert (found["passed"], found["tests"]) == (0, 6), found


def test_an_answer_without_end_or_bottom_passes_no_test() -> None:
    for written in (b"99999999999999\n", b"9" * 1000, b"1000000\n" + b"[" * 1000000):
        assert told(SAYS.format(f"{written[:9]!r} + {written[-1:]!r} * {len(written)}"))["passed"] == 0
