"""Recall finds facts in the languages and scripts of their questions, without an embedder or a language setting."""

import tomllib
from pathlib import Path

import pytest

from learnloop_dataplane.recall.questions import question_of
from learnloop_dataplane.recall.ranking import rank

from .test_ranking import ANALYZER, memories

LANGUAGES = tomllib.loads((Path(__file__).parent / "languages.toml").read_text(encoding="utf-8"))
FACTS = [fact for each in LANGUAGES.values() for fact in each["facts"]]


def hits(language: str, k: int, kind: str = "questions") -> int:
    """How many of a language's questions have their fact among the best k."""
    stored = memories([("", "user", fact) for fact in FACTS])
    pairs = zip(LANGUAGES[language]["facts"], LANGUAGES[language][kind], strict=True)
    return sum(FACTS.index(fact) in rank(stored, question_of(text, ANALYZER), k).rows for fact, text in pairs)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_question_finds_its_fact_among_those_of_all_languages(language: str) -> None:
    assert hits(language, 1) == len(LANGUAGES[language]["questions"]) == 10


@pytest.mark.parametrize("language", ["ru", "ar", "hi"])
def test_other_forms_of_the_words_find_it_without_a_language_setting(language: str) -> None:
    assert hits(language, 1, "reworded") >= 9
