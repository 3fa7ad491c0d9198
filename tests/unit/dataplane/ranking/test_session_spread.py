"""An answer from several sessions, and the best of a session as evidence for all of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_dataplane.ranking.columns import Columns
from learnloop_dataplane.ranking.relevance_signals import session_best
from learnloop_dataplane.ranking.session_spread import LESS, spread

RANKED = st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 3)), max_size=30)


def greedily(scores: list[float], threads: list[int]) -> list[int]:
    """The definition: each time the best, and the rest of its session falls."""
    left, order = dict(enumerate(scores)), []
    while left:
        chosen = max(left, key=lambda place: (left[place], -place))
        order.append(chosen)
        del left[chosen]
        for place in left:
            left[place] -= LESS * (threads[place] == threads[chosen] != 0)
    return order


@given(RANKED)
def test_each_time_the_best_comes_and_the_rest_of_its_session_falls(ranked: list[tuple[int, int]]) -> None:
    # Thousandths that no two share: where two are equal, either may come first.
    told = sorted(((score + place / 1000, thread) for place, (score, thread) in enumerate(ranked)), reverse=True)
    scores, threads = [score for score, _ in told], [thread for _, thread in told]
    order, left = spread(np.array(scores, np.float64), np.array(threads, np.int64))
    assert order.tolist() == greedily(scores, threads)
    assert (np.diff(left) <= 0).all(), "what is shown comes highest first"


def test_a_second_day_has_a_place_where_the_first_day_would_have_taken_all() -> None:
    order, left = spread(np.array([2.0, 1.9, 1.8, 1.2]), np.array([7, 7, 7, 8], np.int64))
    assert order.tolist() == [0, 1, 3, 2]
    assert left == pytest.approx([2.0, 1.9 - LESS, 1.2, 1.8 - 2 * LESS])


def test_memories_of_no_session_take_nothing_from_one_another() -> None:
    order, left = spread(np.array([2.0, 1.9, 1.8]), np.zeros(3, np.int64))
    assert order.tolist() == [0, 1, 2]
    assert left.tolist() == [2.0, 1.9, 1.8]


def test_the_best_of_a_session_speaks_for_all_of_it_and_for_nobody_else() -> None:
    n = 6
    found = Columns(
        ids=np.arange(16 * n).astype(np.uint8).reshape(n, 16),
        words=np.zeros(0, np.uint32),
        lengths=np.zeros(n, np.int32),
        created=np.arange(n, dtype=np.float64),
        importance=np.full(n, 0.5, np.float32),
        utility=np.zeros(n, np.float32),
        threads=np.array([5, 9, 5, 9, 0, 0], np.int64),
    )
    assert session_best(found, np.array([1.0, 0.0, 4.0, 2.0, 7.0, 3.0])).tolist() == [4.0, 2.0, 4.0, 2.0, 7.0, 3.0]
