"""What each signal of a recall says: what differs little says little, an embedder counts as much as it is trusted."""

import numpy as np
import pytest

from learnloop_dataplane.ranking.candidates import Query
from learnloop_dataplane.ranking.columns import LEAST_SPREAD, Columns
from learnloop_dataplane.ranking.relevance_signals import SIGNALS, STATIC, signals, telling, weight_vector
from learnloop_dataplane.text.analysis import Analyzer
from learnloop_dataplane.text.tokenizer import pack, term_hash

DAY = 86_400.0
terms = Analyzer().terms


def columns(texts: list[str], created: list[float] | None = None, utility: list[float] | None = None) -> Columns:
    packed = [np.frombuffer(pack(terms(text)), "<u4") for text in texts]
    n = len(texts)
    return Columns(
        ids=np.arange(16 * n).astype(np.uint8).reshape(n, 16),
        words=np.concatenate(packed),
        lengths=np.array([len(item) for item in packed], np.int32),
        created=np.array(created or [0.0] * n),
        importance=np.full(n, 0.5, np.float32),
        utility=np.array(utility or [0.0] * n, np.float32),
        threads=np.zeros(n, np.int64),
    )


def asked(found: Columns, text: str, trust: float = 1.0) -> np.ndarray:
    query = np.array([term_hash(term) for term in terms(text)], np.uint32)
    cosines = np.arange(len(found), dtype=np.float64)
    return signals(found, cosines, query, trust=trust).of(np.arange(len(found)))


def test_memories_of_one_minute_are_not_told_apart_by_recency() -> None:
    found = columns(["a harbour", "a violin", "a lamp"], created=[0.0, 30.0, 60.0])
    assert np.abs(asked(found, "violin")[:, SIGNALS.index("recency")]).max() < 0.01


def test_memories_of_different_months_are() -> None:
    found = columns(["a harbour", "a violin", "a lamp"], created=[0.0, 30 * DAY, 60 * DAY])
    assert asked(found, "violin")[2, SIGNALS.index("recency")] > 1.0


def test_one_memory_that_helped_once_does_not_answer_every_question() -> None:
    texts = [f"the {word} is kept in room {number}" for number, word in enumerate(["harbour", "violin", "lamp"] * 200)]
    found = columns(texts, utility=[0.3] + [0.0] * 599)
    z = asked(found, "which room has the lamp?")
    assert z[0, SIGNALS.index("utility")] <= 0.3 / LEAST_SPREAD
    scores = z @ weight_vector(STATIC | {"vector": 0.0})
    assert "lamp" in texts[int(np.argmax(scores))]


def test_an_embedder_counts_as_much_as_it_is_trusted() -> None:
    found = columns(["a harbour", "a violin", "a lamp"])
    whole, part = (asked(found, "violin", trust)[:, SIGNALS.index("vector")] for trust in (1.0, 0.2))
    assert part == pytest.approx(0.2 * whole)


def test_of_a_page_of_text_the_words_that_few_memories_have_are_looked_for_wherever_they_stand() -> None:
    filler = [f"topic{number:03}" for number in range(300)]
    found = columns([*(" ".join(filler) for _ in range(200)), "the violin is in the cupboard"])
    page = f"{' '.join(filler[:120])} and where is the violin?"
    assert int(np.argmax(asked(found, page)[:, SIGNALS.index("lexical")])) == 200


def test_words_that_nobody_has_take_no_place_from_those_that_somebody_has() -> None:
    found = columns(["the violin is in the cupboard", "the harbour is closed", "a lamp"])
    page = f"{' '.join(f'unknown{number}' for number in range(120))} violin"
    assert int(np.argmax(asked(found, page)[:, SIGNALS.index("lexical")])) == 0


def test_the_rarest_words_are_chosen_and_those_that_nobody_has_last() -> None:
    frequency = np.array([5.0, 0.0] + [9.0] * 70 + [1.0])
    chosen = telling(frequency).tolist()
    assert len(chosen) == 64
    assert chosen == sorted(chosen)
    assert {0, 72} <= set(chosen)
    assert 1 not in chosen


def test_of_a_long_text_the_beginning_and_the_end_are_asked_for() -> None:
    words = [f"w{number}" for number in range(2000)]
    query = Query("", words, None, "", None, ())
    hashes = query.hashes().tolist()
    assert len(hashes) == 256
    assert hashes[0] == term_hash("w0")
    assert hashes[-1] == term_hash("w1999")


def test_a_words_frequency_counts_memories_that_came_after_the_postings_were_made() -> None:
    found = columns(["violin lamp", "violin harbour"]).by_word().append(columns(["violin violin", "compass"]))
    assert found.postings.rows == 2, "the last two are found word by word"
    words = ("compass", "nobody", "violin", "lamp")
    assert found.frequency(np.array([term_hash(word) for word in words], np.uint32)).tolist() == [1, 0, 3, 1]
