"""The addresses of policies that do anything, each as likely."""

import re

import pytest
from hypothesis import given, strategies as st

from learnloop_api.uniform_policy import PATTERN, UniformSpaces, parse

SIZES = st.none() | st.integers(1, 99_999)
NUMBERS = st.floats(-1e9, 1e9)
ENDS = st.tuples(NUMBERS, NUMBERS).filter(lambda ends: ends[0] < ends[1])


@given(st.integers(1, 65_536), SIZES)
def test_a_choice_reads_back_as_it_was_written(choices: int, observations: int | None) -> None:
    spaces = UniformSpaces(choices, observations=observations)
    assert parse(spaces.uri()) == spaces


@given(st.integers(0, 99), st.lists(ENDS, min_size=1, max_size=4), st.integers(1, 3), SIZES)
def test_numbers_read_back_exactly(choices: int, ends: list[tuple[float, float]], times: int, size: int | None) -> None:
    low, high = (tuple(end[side] for end in ends for _ in range(times)) for side in (0, 1))
    spaces = UniformSpaces(choices, low, high, size)
    assert parse(spaces.uri()) == spaces
    assert re.fullmatch(PATTERN, spaces.uri())


def test_what_is_equal_is_written_once() -> None:
    assert UniformSpaces(0, (-1.0,) * 7, (1.0,) * 7, 20).uri() == "uniform://continuous/-1..1*7?observations=20"
    assert UniformSpaces(3, (0.0, -1.0), (1.0, 1.0)).uri() == "uniform://hybrid/3/0..1,-1..1"


def test_several_choices_at_once_are_as_many_as_their_combinations() -> None:
    assert parse("uniform://multi-discrete/3x4?observations=5") == UniformSpaces(12, observations=5)


@pytest.mark.parametrize(
    "uri",
    [
        "uniform://discrete/0",
        "uniform://discrete/4/5",
        "uniform://discrete/4?observations=0",
        "uniform://discrete/4?seen=3",
        "uniform://multi-discrete/9999x9999",
        "uniform://continuous/2..-2",
        "uniform://continuous/1..1",
        "uniform://continuous/nan..1",
        "uniform://continuous/-1..1*99999",
        "uniform://continuous/-1e999..1",
        "uniform://hybrid/-1..1",
        "uniform://gaussian/1",
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_fix(uri: str) -> None:
    with pytest.raises(ValueError, match=r"uniform://.*: write uniform://discrete/4"):
        parse(uri)
