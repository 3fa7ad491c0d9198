"""Tests ask honest code, which runs in another process, as they would ask it in their own."""

import json
import subprocess
import sys

import pytest

from learnloop_dataplane.sandbox.cases import VARIABLE, RunCase

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and filters are Linux's")
# Not as another user: there may be a Python that root alone may read, as far as it is not loaded.
RUN = "import learnloop_dataplane.sandbox.limited_run as run; run.NOBODY = 0; run.main()"
CODE = '''
"""Doc."""

import collections, dataclasses, enum, asyncio
from typing import NamedTuple

LIMIT = 3


class TooMuch(ValueError):
    def __init__(self, n):
        super().__init__(n)
        self.n = n

    def __str__(self):
        return f"{self.n} is too much"


@dataclasses.dataclass
class Point:
    """A point."""

    x: int
    y: int

    def __add__(self, o):
        return Point(self.x + o.x, self.y + o.y)

    def __mul__(self, k):
        return Point(self.x * k, self.y * k)


class P(NamedTuple):
    a: int
    b: str


class Colour(enum.Enum):
    RED = 1


class Stack(list):
    def push(self, x):
        self.append(x)

    def peek(self):
        return self[-1]


class Bag:
    def __init__(self):
        self._d = {}

    def add(self, k):
        self._d[k] = self._d.get(k, 0) + 1
        return self

    def __len__(self):
        return sum(self._d.values())

    def __iter__(self):
        return iter(self._d)

    def __getitem__(self, k):
        return self._d[k]

    def __contains__(self, k):
        return k in self._d

    def __enter__(self):
        return self

    def __exit__(self, *a):
        return a[0] is KeyError

    def __repr__(self):
        return "Bag()"


def sort(a):
    a.sort()


def rot(m):
    m[:] = [list(r) for r in zip(*m[::-1])]


def same(a):
    return a


def fail(n):
    """Fails."""
    raise TooMuch(n)


def gen(n):
    for i in range(n):
        yield i * i


def apply(f, *xs, **k):
    return [f(x, **k) for x in xs]


def fact(n):
    return 1 if n < 2 else n * fact(n - 1)


async def later(x):
    await asyncio.sleep(0)
    return x + 1


def hello():
    print("hello")


def group(ws):
    d = collections.defaultdict(list)
    for w in ws:
        d[len(w)].append(w)
    return d


def count(s):
    return collections.Counter(s)


def calls(f):
    try:
        f()
    except KeyError as e:
        return repr(e)


def reraise(f):
    f()


def raw():
    return b"x", 1.5, float("inf"), {1, 2}, frozenset([3]), None, 2**100, 1j


def limit():
    return LIMIT
'''
TESTS = """
import io, contextlib, unittest, asyncio, math
from unittest import mock
import solution
from solution import *
from solution import Point, TooMuch


def test_data():
    assert solution.raw() == (b"x", 1.5, float("inf"), {1, 2}, frozenset([3]), None, 2**100, 1j)


def test_sort():
    a = [3, 1, 2]
    assert sort(a) is None
    assert a == [1, 2, 3]


def test_rot():
    m = [[1, 2], [3, 4]]
    r = m
    rot(m)
    assert m == [[3, 1], [4, 2]] and r is m


def test_same():
    a = [1]
    assert same(a) is a
    c = [1]
    c.append(c)
    assert same(c) is c and len(c) == 2


class T(unittest.TestCase):
    def test_raises(self):
        with self.assertRaises(TooMuch) as c:
            fail(7)
        self.assertEqual(c.exception.n, 7)
        self.assertEqual(str(c.exception), "7 is too much")
        with self.assertRaises(ValueError):
            fail(1)
        with self.assertRaises(ZeroDivisionError):
            apply(lambda x: 1 / x, 0)

    def test_point(self):
        self.assertEqual(Point(1, 2) + Point(3, 4), Point(4, 6))
        self.assertEqual(Point(1, 2).x, 1)
        self.assertEqual(Point(1, 2).__mul__(2).y, 4)
        self.assertIsInstance(Point(1, 2), Point)
        self.assertNotEqual(Point(1, 2), (1, 2))
        self.assertEqual(repr(Point(1, 2)), "Point(x=1, y=2)")
        p = Point(1, 2)
        p.x = 9
        self.assertEqual(p.x, 9)
        self.assertEqual(type(p).__name__ and p.__class__.__name__, "Point")

    def test_named(self):
        self.assertEqual(solution.P(1, "b"), (1, "b"))
        self.assertEqual(solution.P(1, "b").b, "b")

    def test_enum(self):
        self.assertEqual(Colour.RED.value, 1)
        self.assertIs(Colour.RED, Colour.RED)
        self.assertEqual(Colour(1), Colour.RED)

    def test_stack(self):
        s = Stack()
        s.push(1)
        s.push(2)
        self.assertEqual(s, [1, 2])
        self.assertEqual(s.peek(), 2)
        self.assertIn(2, s)
        self.assertEqual(len(s), 2)
        self.assertEqual(s[0], 1)

    def test_bag(self):
        b = Bag()
        b.add("x").add("x")
        self.assertEqual(len(b), 2)
        self.assertEqual(list(b), ["x"])
        self.assertEqual(b["x"], 2)
        self.assertIn("x", b)
        with self.assertRaises(KeyError):
            b["y"]
        with b as c:
            raise KeyError("z")
        self.assertTrue(b)
        self.assertEqual(str(b), "Bag()")

    def test_gen(self):
        self.assertEqual(list(gen(4)), [0, 1, 4, 9])
        g = gen(2)
        self.assertEqual(next(g), 0)
        next(g)
        with self.assertRaises(StopIteration):
            next(g)
        self.assertEqual(sum(gen(3)), 5)

    def test_calls(self):
        self.assertEqual(apply(lambda x, k=1: x + k, 1, 2, k=3), [4, 5])
        m = mock.Mock(return_value=5)
        self.assertEqual(apply(m, 1), [5])
        m.assert_called_once_with(1)
        seen = []
        apply(seen.append, 1, 2)
        self.assertEqual(seen, [1, 2])
        self.assertEqual(apply(fact, 3), [6])
        self.assertIs(same(len), len)

    def test_own_error(self):
        class Mine(Exception):
            pass

        def f():
            raise Mine("a", 1)

        with self.assertRaises(Mine) as c:
            solution.reraise(f)
        self.assertEqual(c.exception.args, ("a", 1))

    def test_big(self):
        self.assertEqual(fact(900), math.factorial(900))

    def test_async(self):
        self.assertEqual(asyncio.run(later(1)), 2)

    def test_out(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            hello()
        self.assertEqual(out.getvalue(), "hello\\n")

    def test_dicts(self):
        self.assertEqual(solution.group(["a", "b", "cc"]), {1: ["a", "b"], 2: ["cc"]})
        self.assertEqual(solution.count("aab").most_common(1), [("a", 2)])

    def test_patch(self):
        with mock.patch("solution.LIMIT", 9):
            self.assertEqual(solution.limit(), 9)
        self.assertEqual(solution.limit(), 3)
        solution.LIMIT = 4
        self.assertEqual(solution.limit(), 4)

    def test_doc(self):
        self.assertEqual(fail.__doc__, "Fails.")
        self.assertEqual(fail.__name__, "fail")
        self.assertIsNone(sort.__doc__)


class A(unittest.IsolatedAsyncioTestCase):
    async def test_later(self):
        self.assertEqual(await later(4), 5)
"""


def test_all_that_tests_may_do_with_code_is_as_in_one_process() -> None:
    environment = {VARIABLE: RunCase(CODE, TESTS, 60, 256).written()}
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", RUN],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert json.loads(done.stdout) == {"passed": 20, "tests": 20, "note": "20 of 20 tests passed"}
