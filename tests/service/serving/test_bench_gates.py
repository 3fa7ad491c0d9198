"""A short `make bench-gates`: a server process, bad models at random rates, models at the limit, failing suites."""

from collections.abc import Iterator

import pytest

from bench.gates import broken, models
from bench.gates.__main__ import gate
from bench.gates.gate import Gate


@pytest.fixture(scope="module")
def quick() -> Iterator[Gate]:
    with gate() as found:
        yield found


def test_a_model_of_each_fault_is_stopped_at_a_random_rate(quick: Gate) -> None:
    found = models.bad(quick, each=1, seed=7)
    assert not found["missed"], found["passed"]


def test_models_at_the_very_limit_seldom_pass_and_identical_ones_seldom_do_not(quick: Gate) -> None:
    assert not models.at_the_limit(quick, each=2, seed=7)["missed"]
    same = models.same(quick, gates=2, seed=7)
    assert same["blocked"] <= 1, same["why"]


def test_suites_that_fail_themselves_pass_no_model(quick: Gate) -> None:
    some = ("a candidate that is thinking", "a judge that misses most", "no such suite", "killed at once")
    found = broken.measured(quick, some)
    assert not found["missed"]
    assert found["processes"] == len(some)
