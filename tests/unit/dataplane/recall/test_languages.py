"""Recall finds facts in the languages and scripts of their questions, without an embedder or a language setting."""

import tomllib
from pathlib import Path

import pytest

from learnloop_dataplane.recall.questions import question_of
from learnloop_dataplane.recall.ranking import rank

from .test_ranking import ANALYZER, memories

LANGUAGES = tomllib.loads((Path(__file__).parent / "languages.toml").read_text(encoding="utf-8"))
FACTS = [fact for each in LANGUAGES.values() for fact in each["facts"]]
WORDINGS = [*((each, "questions", 10) for each in LANGUAGES), *((each, "reworded", 9) for each in ("ru", "ar", "hi"))]


@pytest.mark.parametrize(("language", "wording", "least"), WORDINGS)
def test_a_question_finds_its_fact_among_those_of_all_languages(language: str, wording: str, least: int) -> None:
    stored = memories([("", "user", fact) for fact in FACTS])
    pairs = zip(LANGUAGES[language]["facts"], LANGUAGES[language][wording], strict=True)
    assert sum(FACTS.index(fact) in rank(stored, question_of(text, ANALYZER), 1).rows for fact, text in pairs) >= least


@pytest.mark.parametrize(
    ("text", "question"), [("我每天早上喝茶", "茶"), ("the vio\u200blin is here", "which violin?")]
)
def test_one_character_and_a_word_with_a_mark_without_width_are_found(text: str, question: str) -> None:
    stored = memories([("", "user", each) for each in (text, *FACTS)])
    assert rank(stored, question_of(question, ANALYZER), 1).rows == [0]
