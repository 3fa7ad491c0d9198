"""An answer from several sessions, and the best of a session as evidence for all of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_dataplane.ranking.columns import Columns
from learnloop_dataplane.ranking.relevance_signals import session_best
from learnloop_dataplane.ranking.session_spread import HEAD, LESS, spread

RANKED = st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 3)), max_size=30)


def greedily(scores: list[float], threads: list[int]) -> list[int]:
    """The definition: behind the head each time the best, and the rest of its session falls, once."""
    head = list(range(min(HEAD, len(scores))))
    there, order = {threads[place] for place in head} - {0}, list(head)
    rest = list(range(len(head), len(scores)))
    while rest:
        chosen = max(rest, key=lambda place: (scores[place] - LESS * (threads[place] in there), -place))
        order.append(chosen)
        rest.remove(chosen)
        there |= {threads[chosen]} - {0}
    return order


@given(RANKED)
def test_behind_the_head_each_time_the_best_comes_and_the_rest_of_its_session_falls_once(
    ranked: list[tuple[int, int]],
) -> None:
    # Thousandths that no two share: where two are equal, either may come first.
    told = sorted(((score + place / 1000, thread) for place, (score, thread) in enumerate(ranked)), reverse=True)
    scores, threads = [score for score, _ in told], [thread for _, thread in told]
    order, left = spread(np.array(scores, np.float64), np.array(threads, np.int64))
    assert order.tolist() == greedily(scores, threads)
    assert (np.diff(left) <= 0).all(), "what is shown comes highest first"


def test_a_second_day_has_a_place_where_the_first_day_would_have_taken_all() -> None:
    scores = np.array([3.0, 2.9, 2.8, 2.7, 2.6, 2.5, 2.4, 1.2])
    order, left = spread(scores, np.array([7, 7, 7, 7, 7, 7, 7, 8], np.int64))
    assert order.tolist() == [0, 1, 2, 3, 4, 7, 5, 6]
    assert left == pytest.approx([3.0, 2.9, 2.8, 2.7, 2.6, 1.2, 2.5 - LESS, 2.4 - LESS])


def test_the_first_five_come_by_their_scores_alone() -> None:
    scores = np.array([3.0, 2.9, 2.8, 2.7, 2.6, 2.5])
    order, left = spread(scores, np.array([7, 7, 7, 7, 7, 8], np.int64))
    assert order.tolist() == list(range(6))
    assert left.tolist() == scores.tolist()


def test_memories_of_no_session_take_nothing_from_one_another() -> None:
    scores = 2.0 - np.arange(9) / 10
    order, left = spread(scores, np.zeros(9, np.int64))
    assert order.tolist() == list(range(9))
    assert left.tolist() == scores.tolist()


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
