"""Standing instructions and preferences are recognised in six languages, and ordinary sentences stay what they are."""

import time
import tomllib
from pathlib import Path

import pytest

from learnloop_dataplane.recall.kinds import Form, Kind, asks_amount, asks_assistant, form_of, kind_of, says_i

SAID = tomllib.loads((Path(__file__).parent / "statements.toml").read_text(encoding="utf-8"))
LANGUAGES = tuple(SAID["instruction"])


def test_the_set_is_large_enough() -> None:
    assert sum(len(texts) for table in SAID.values() for texts in table.values()) >= 200
    assert len(LANGUAGES) >= 6


@pytest.mark.parametrize("language", LANGUAGES)
def test_instructions_are_recognised_in_most_phrasings(language: str) -> None:
    missed = [text for text in SAID["instruction"][language] if kind_of(text, "user") != Kind.INSTRUCTION]
    assert len(missed) <= 0.1 * len(SAID["instruction"][language]), missed


@pytest.mark.parametrize("language", LANGUAGES)
def test_preferences_are_recognised(language: str) -> None:
    missed = [text for text in SAID["preference"][language] if kind_of(text, "user") != Kind.PREFERENCE]
    assert not missed


@pytest.mark.parametrize("language", LANGUAGES)
def test_ordinary_sentences_are_statements(language: str) -> None:
    taken = [text for text in SAID["statement"][language] if kind_of(text, "user") != Kind.STATEMENT]
    assert not taken


def test_an_assistant_states_no_instruction_and_a_withdrawal_is_recognised() -> None:
    assert kind_of("Always back up your data.", "assistant") == Kind.STATEMENT
    for text in (
        "You no longer need to cite sources.",
        "Du musst nicht mehr auf Deutsch antworten.",
        "Ya no hace falta que cites fuentes.",
        "不用再注明来源了。",
    ):
        assert kind_of(text, "user") == Kind.WITHDRAWAL


def test_questions_have_a_form_and_are_about_who_asks_or_the_assistant() -> None:
    assert form_of("Can you summarize what we did?") == form_of("Fass bitte alles zusammen") == Form.SUMMARY
    assert form_of("In which order did I visit them?") == form_of("我是按什么顺序做的?") == Form.ORDER
    assert form_of("When does the train leave?") == Form.FACT
    assert says_i("What is my job?")
    assert not says_i("What is Ann's job?")
    assert asks_assistant("What did you recommend?")
    assert not asks_assistant("What would you recommend?")


def test_questions_for_a_time_or_an_amount_are_recognised() -> None:
    for text in (
        "When did she leave?",
        "How many are there?",
        "Wann war das?",
        "Combien de chats ?",
        "你什么时候来的?",
        "Сколько их?",
    ):
        assert asks_amount(text), text
    for text in ("Where did she leave it?", "Wo war das?", "她在哪里?"):
        assert not asks_amount(text), text


@pytest.mark.parametrize("words", ["how ", "hast du "])
def test_a_question_of_any_length_is_looked_at_quickly_and_still_understood_by_its_end(words: str) -> None:
    question = words * (65_536 // len(words))
    began = time.process_time()
    assert form_of(question) == Form.FACT
    assert not asks_assistant(question)
    assert time.process_time() - began < 1.0
    assert asks_amount(f"{question}. When was it?")
