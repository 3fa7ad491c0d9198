"""Columns and their words, however they came together."""

import numpy as np
import pytest

from learnloop_dataplane.ranking.columns import Columns
from learnloop_dataplane.ranking.relevance_signals import bm25, signals

from ..recall.test_recall import columns, query


def test_columns_that_grew_score_as_if_they_were_new() -> None:
    texts = [f"{'fox ' * (index % 4)}dog n{index}" for index in range(300)]
    whole = columns(texts)
    assert whole.postings
    grown = whole.take(np.arange(200))
    assert grown.postings
    for start in range(200, 300, 10):
        grown = grown.append(whole.take(np.arange(start, start + 10)))
    assert grown.postings.rows == 200, "few came after the postings, so they were not made again"
    words = query("fox n250 dog n10")
    assert bm25(grown, words) == pytest.approx(bm25(columns(texts), words))


def test_columns_taken_in_another_order_are_the_same_memories() -> None:
    whole = columns(["a b c", "", "b b", "c"], [1, 1, 0, 2])
    back: Columns = whole.take(np.array([3, 1, 0, 2])).take(np.array([2, 1, 3, 0]))
    nan = np.full(4, np.nan)
    assert np.array_equal(back.words, whole.words)
    rows = np.arange(4)
    assert signals(back, nan, query("b c")).of(rows) == pytest.approx(signals(whole, nan, query("b c")).of(rows))


def test_words_kept_by_word_are_those_of_each_memory_and_grow() -> None:
    whole = columns([f"{'fox ' * (index % 4)}dog n{index}" for index in range(400)])
    slim = whole.by_word()
    assert not len(slim.words)
    assert slim.words.base is None, "a slice of them would keep all of them"
    later = columns(["dog new", "cat"])
    for grown in (slim.append(later), slim.append(later.by_word()), slim.append(later).by_word()):
        assert len(grown) == 402
        for asked in ("fox n250 dog", "cat new"):
            plain = whole.append(later)
            assert bm25(grown, query(asked)) == pytest.approx(bm25(plain, query(asked)))
    rows = np.array([399, 3, 77])
    taken, plain = slim.take(rows), whole.take(rows)
    assert bm25(taken, query("fox n77")) == pytest.approx(bm25(plain, query("fox n77")))
    assert sorted(taken.words.tolist()) == sorted(plain.words.tolist())
