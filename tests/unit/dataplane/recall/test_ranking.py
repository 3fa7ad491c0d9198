"""The ranking's steps, each by what it puts first. Pure."""

import numpy as np
from hypothesis import given, strategies as st

from learnloop_dataplane.recall.questions import index, question_of, speaker_of
from learnloop_dataplane.recall.ranking import Memories, rank
from learnloop_dataplane.stems import Analyzer, same_of

ANALYZER = Analyzer()
Turn = tuple[str, str, str]  # session, speaker, text


def memories(turns: list[Turn], outcomes: list[float] | None = None, cosines: list[float] | None = None) -> Memories:
    n = len(turns)
    rows = [index({"text": text}, speaker, session or None, ANALYZER) for session, speaker, text in turns]
    packed = [np.frombuffer(row.terms, "<u4") for row in rows]
    return Memories(
        ids=np.zeros((n, 16), np.uint8),
        words=np.concatenate([np.zeros(0, np.uint32), *packed]).astype(np.uint32),
        distinct=np.array([len(item) for item in packed]),
        named=np.array([row.named for row in rows]),
        about=np.frombuffer(b"".join(row.about for row in rows), "<u4"),
        roots=np.array([len(row.about) // 4 for row in rows]),
        sessions=np.array([row.session for row in rows]),
        same=np.array([same_of({"text": text}, speaker) for _, speaker, text in turns]),
        owners=np.array([same_of({}, speaker) for _, speaker, _ in turns]),
        spoken_at=np.arange(n),
        speakers=np.array([row.speaker for row in rows]),
        kinds=np.array([int(row.kind) for row in rows]),
        persons=np.array([row.person for row in rows]),
        outcomes=np.array(outcomes or [0.0] * n),
        cosines=np.array(cosines or [np.nan] * n),
    )


def order(turns: list[Turn], question: str, k: int = 10, **more: list[float]) -> list[int]:
    return rank(memories(turns, **more), question_of(question, ANALYZER), k).rows


NOISE = [("n", "Ann", f"the weather of day {number} was mild") for number in range(20)]


def test_the_reply_next_to_the_words_comes_before_what_has_none_of_them() -> None:
    turns = [*NOISE, ("s", "Ann", "which violin did you buy?"), ("s", "Bob", "the old one"), ("t", "Bob", "lunch")]
    assert set(order(turns, "which violin was bought", 2)) == {20, 21}


def test_the_named_speaker_comes_first_and_a_label_is_none() -> None:
    turns = [("a", "Ann", "we saw a heron"), ("b", "Bob", "we saw a heron"), *NOISE]
    assert order(turns, "what did Bob see, a heron?", 1) == [1]
    assert order(turns, "what did Ann see, a heron?", 1) == [0]
    assert not any(speaker_of({"text": text}, None) for text in ("The wifi password is: tide", "Recipe: leek soup"))


def test_a_question_in_the_first_person_is_about_the_user() -> None:
    turns = [("a", "assistant", "the deadline is on Friday"), ("b", "user", "the deadline is on Monday"), *NOISE]
    assert order(turns, "when is my deadline?", 1) == [1]
    assert order(turns, "what deadline did you mention?", 1) == [0]


def test_of_copies_one_is_answered() -> None:
    copies = [("", "Ann", text) for text in ("The violin is here.", "the violin is HERE")] * 20
    turns = [*NOISE, *copies, ("", "Bob", "the violin is here"), ("", "Ann", "always tune a violin")]
    for question in ("which violin?", "in which order did we mention the violin?", "summarize all about the violin"):
        assert {turns[row] for row in order(turns, question, 3)} - set(copies) == set(turns[-2:]), question


def test_of_copies_of_an_instruction_the_one_that_was_given_again_stands() -> None:
    given = memories(
        [*NOISE, *[(each, "Ann", "Always name the tide.") for each in "tu"], ("t", "Ann", "the boat left")]
    )
    given.kinds[20] = 0  # withdrawn before the second
    assert 21 in rank(given, question_of("when has the boat left?", ANALYZER), 5).rows


def test_outcomes_decide_between_equals_and_never_bring_up_what_does_not_fit() -> None:
    turns = [("", "Ann", "key behind the clock"), ("", "Ann", "key behind the mirror"), *NOISE]
    for first in (1.0, -1.0):
        assert order(turns, "where is the key", 2, outcomes=[first, -first] + [0.0] * 20) == [first < 0, first > 0]
    assert set(order(turns, "where is the key", 2, outcomes=[-1.0, -1.0] + [1.0] * 20)) == {0, 1}


def test_a_cosine_adds_and_a_missing_one_changes_nothing() -> None:
    turns = [("", "Ann", "the cello sounds"), ("", "Ann", "a bus stops"), *NOISE]
    assert order(turns, "which instrument plays", 1, cosines=[0.1, 0.9] + [0.1] * 20) == [1]
    assert order(turns, "which cello sounds", 1) == [0]


def test_a_cosine_counts_for_more_where_the_named_speaker_speaks() -> None:
    turns = [("", "Ann", "the bus stops"), ("", "Bob", "a tram stops"), *NOISE]
    for name, best in (("Bob", 1), ("Ann", 0)):
        assert order(turns, f"what did {name} play?", 1, cosines=[0.9, 0.9] + [0.1] * 20) == [best]


def test_a_question_for_a_time_or_an_amount_is_answered_by_what_names_one() -> None:
    turns = [("", "Ann", "the heron came here again"), ("", "Ann", "the heron came last Tuesday"), *NOISE]
    assert order(turns, "when did the heron come?", 1) == [1]
    assert order(turns, "where did the heron come?", 1) == [0]
    turns = [("", "Ann", "the horses drink"), ("", "Ann", "the horses drink 12 buckets of it"), *NOISE]
    assert order(turns, "how many horses drink?", 1) == [1]


@given(st.lists(st.sampled_from(["Ann", "Bob"]), max_size=9), st.integers(0, 8), st.booleans())
def test_a_longer_answer_about_a_fact_begins_as_a_shorter_one(names: list[str], k: int, near: bool) -> None:
    turns = [("s" * near, name, f"{name} saw {number % 3} herons") for number, name in enumerate(names)]
    assert order(turns, "which herons?", k + 1)[:k] == order(turns, "which herons?", k)


def test_of_nothing_comes_nothing() -> None:
    assert order([], "anything") == []
    assert rank(memories(NOISE), question_of("", ANALYZER), 3).rows == [19, 18, 17], "without a word, the newest"


def test_an_instruction_that_shares_no_word_with_the_question_fits_by_what_answers_it() -> None:
    turns = [
        ("a", "user", "Always format dates as day and month when I ask about deadlines"),
        ("a", "user", "Always name the allergens when I ask about snacks"),
        *NOISE,
        ("b", "user", "the essay is due in May, one of two deadlines this spring"),
    ]
    assert order(turns, "when is the essay due?", 5)[-1] == 0
    assert 1 in order(turns, "which snack is good for the essay?", 5)


def test_instructions_that_fit_by_the_topic_have_a_fifth_of_the_answer() -> None:
    rules = [("a", "user", f"Always mention item {number} when I ask about plants") for number in range(9)]
    beds = [("g", "user", f"bed {number} has the plants that need rain") for number in range(20)]
    for k, most in ((10, 2), (5, 1), (3, 1), (1, 0)):
        rows = order([*rules, *NOISE, *beds], "how much rain is needed", k)
        assert len([row for row in rows if row < len(rules)]) == most
        assert len(rows) == k


def test_a_preference_has_a_place_that_no_instruction_fits_and_a_speakers_name_fits_none() -> None:
    beds = [("g", "user", f"bed {number} has the plants that need rain") for number in range(20)]
    likes = [("a", "user", "I prefer shade for plants"), ("b", "user", "Always name the tram")]
    for question, rows in ("which plants need rain", {0}), ("which tram is near the beds of the user?", {1}):
        assert set(order([*likes, *NOISE, *beds], question)) & {0, 1} == rows


def test_a_word_for_a_role_names_nobody() -> None:
    turns = [("a", "user", "Always name the version when I ask about libraries"), *NOISE]
    turns += [("b", "user", f"library {number} shows a form") for number in range(12)]
    assert 0 in order(turns, "which library shows the user a form?")


def test_an_order_of_what_the_assistant_said_has_it_and_no_answer_is_short_of_memories() -> None:
    turns = [("a", "user", "hello"), *[("a", "agent", f"plant row {number} of tomatoes") for number in range(8)]]
    assert 0 not in order(turns, "In which order did you recommend the rows of tomatoes?", 4)
    assert len(order(turns, "In which order were the tomatoes planted?", 6)) == 6
    turns += [("b", "user", "Always name the bed of tomatoes.")]
    for question in ("In which order were the tomatoes planted?", "Summarize what we did with the tomatoes."):
        assert 9 in order(turns, question, 6)


def test_a_summary_spreads_over_the_conversation() -> None:
    close = [("a", "user", "the roof of the barn needs tiles for the barn roof") for _ in range(30)]
    far = [("z", "user", f"quiet day {number}") for number in range(60)]
    turns = [*close, *far, ("z", "user", "the barn got its roof")]
    assert 90 in order(turns, "summarize the story of the barn roof", 6)
