"""When silent pods are asked again, and what period is told: all in virtual time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_operator.rollout.fast_lane import ReadBackoff, ReadInterval


def test_who_is_silent_is_asked_ever_less_often_and_who_answers_each_second() -> None:
    patience, asked = ReadBackoff[str](), {"p": list[int](), "q": list[int]()}
    for second in range(50):
        for pod in patience.due(("p", "q"), float(second)):
            asked[pod].append(second)
            if pod == "q" or second >= 35:
                patience.answered(pod)
            else:
                patience.missed(pod, float(second))
    assert asked["p"] == [0, 1, 3, 7, 15, 25, *range(35, 50)]
    assert asked["q"] == list(range(50))


@given(silent=st.lists(st.booleans(), max_size=100))
def test_nobody_is_left_unasked_for_longer_than_ten_seconds(silent: list[bool]) -> None:
    patience, last = ReadBackoff[str](), 0
    for second, hangs in enumerate(silent):
        if patience.due(("p",), float(second)):
            assert second - last <= 10
            last = second
            if hangs:
                patience.missed("p", float(second))
            else:
                patience.answered("p")
    assert len(silent) - last <= 10


def test_a_pod_that_left_is_forgotten() -> None:
    patience = ReadBackoff[str]()
    patience.missed("p", 0.0)
    assert patience.due((), 0.1) == ()
    assert patience.due(("p",), 0.2) == ("p",)


@pytest.mark.parametrize(("gap", "told"), [(0.9, 1), (1.4, 1), (1.7, 2), (3.3, 5), (9.0, 10), (70.0, 60), (200.0, 133)])
def test_the_period_that_is_told_is_the_measured_one(gap: float, told: int) -> None:
    pace = ReadInterval()
    for look in range(12):
        pace.looked(look * gap)
    assert pace.every == told


def test_the_period_that_is_told_does_not_flap_and_comes_back() -> None:
    pace, now, told = ReadInterval(), 0.0, []
    for gap in [1.0] * 10 + [1.45, 1.55] * 50 + [1.0] * 20:
        now += gap
        pace.looked(now)
        if told[-1:] != [pace.every]:
            told.append(pace.every)
    assert told in ([1], [1, 2, 1])
    assert pace.every == 1
