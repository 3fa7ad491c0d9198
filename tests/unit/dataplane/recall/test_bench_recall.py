"""The figures of `make bench-recall`."""

import numpy as np
import pytest

from bench.recall.conversations import Question
from bench.recall.measures import MEASURES, measure


def test_the_measures_are_those_of_the_field() -> None:
    order = [f"t{place}" for place in range(20)]
    session_of = {turn: f"s{int(turn[1:]) // 5}" for turn in order}
    found = measure(order, Question("?", frozenset({"t1", "t3", "t15", "t7"}), ""), session_of)
    ideal = 1 + 1 / np.log2(3) + 1 / np.log2(4) + 1 / np.log2(5)
    gain = 1 / np.log2(3) + 1 / np.log2(5) + 1 / np.log2(9)
    assert dict(zip(MEASURES, found, strict=True)) == pytest.approx(
        {"r@5": 0.5, "r@10": 0.75, "hit@10": 1.0, "ndcg@10": gain / ideal, "session_r@10": 2 / 3}
    )
    assert measure([], Question("?", frozenset({"t1"}), ""), session_of) == (0.0,) * 5
