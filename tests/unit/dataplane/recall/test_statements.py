"""Standing instructions and preferences are recognised in six languages, and ordinary sentences stay what they are."""

import time
import tomllib
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from learnloop_dataplane.memories.memory_store import NewMemory, row_of
from learnloop_dataplane.recall.questions import index
from learnloop_dataplane.recall.ranking import standing_kinds
from learnloop_dataplane.recall.statements import Form, Kind, asks, form_of, is_person, kind_of

from .test_ranking import ANALYZER, memories

STATEMENTS = tomllib.loads((Path(__file__).parent / "statements.toml").read_text(encoding="utf-8"))
ORDERS = (Kind.INSTRUCTION, Kind.REPLACEMENT)
OWNER = -2  # of a row's values
EXPECTED = [
    *(("instruction", ORDERS, 1), ("unseen", ORDERS, 2), ("preference", (Kind.PREFERENCE,), 0)),
    *(("statement", (Kind.STATEMENT,), 0), ("kept", tuple(Kind)[:3], 0)),
    *(("withdraws", (Kind.WITHDRAWAL,), 0), ("reset", (Kind.RESET,), 0), ("no_reset", tuple(Kind)[:-1], 0)),
]


@pytest.mark.parametrize(("section", "kinds", "most"), EXPECTED)
def test_a_sentence_is_of_the_kind_that_a_reader_takes_it_for(section: str, kinds: tuple[Kind], most: int) -> None:
    for texts in STATEMENTS[section].values():
        missed = [text for text in texts if kind_of(text, "user") not in kinds]
        assert len(missed) <= most, missed


@pytest.mark.parametrize(("rule", "withdrawal", "other"), STATEMENTS["withdrawal"]["all"])
def test_a_withdrawal_ends_what_it_is_about_and_nothing_else(rule: str, withdrawal: str, other: str) -> None:
    kinds = standing_kinds(memories([("", "user", text) for text in (rule, other, withdrawal)])).tolist()
    assert kinds[0] == Kind.STATEMENT != kinds[1] == kind_of(other, "user")


SENTENCES = [text for each in STATEMENTS["withdrawal"]["all"][:4] for text in each] + ["Ignore all my rules."]


@given(st.lists(st.tuples(st.sampled_from(["user", "User Two", "Eve"]), st.sampled_from(SENTENCES)), min_size=1))
def test_ones_statements_stand_as_though_no_other_had_spoken(turns: list[tuple[str, str]]) -> None:
    kinds = standing_kinds(memories([("", *each) for each in turns]))
    for speaker in {each for each, _ in turns}:
        own = [place for place, (each, _) in enumerate(turns) if each == speaker]
        assert kinds[own].tolist() == standing_kinds(memories([("", *turns[place]) for place in own])).tolist()


ANN = {"provenance": {"user": "ann"}}


def test_one_owner_is_one_agent_person_and_speaker_or_a_stranger_of_one_session() -> None:
    memory = NewMemory("agent", "semantic", {"text": "Never use emojis."})
    for one, other, same in (
        ({"session_id": "a"}, {"session_id": "b"}, False),
        ({"session_id": "a"}, {"session_id": "a"}, True),
        ({"session_id": "a", "speaker": "user"}, {"session_id": "b", "speaker": "user"}, True),
        ({"session_id": "a", **ANN}, {"session_id": "b", **ANN}, True),
        ({"session_id": "a", **ANN}, {"session_id": "a"}, False),
        ({"speaker": "Ann Hill", **ANN}, {"speaker": "Ann Wood", **ANN}, False),
        (ANN, {"agent": "other", **ANN}, False),
    ):
        owners = [row_of(replace(memory, **each), datetime.now(UTC), ANALYZER)[OWNER] for each in (one, other)]
        assert (owners[0] == owners[1]) == same, (one, other)


@pytest.mark.parametrize(("texts", "kinds"), STATEMENTS["newer"]["all"])
def test_a_new_instruction_holds_beside_the_withdrawal_of_another(texts: list[str], kinds: list[int]) -> None:
    given = memories([("", "user", text) for text in texts])
    assert standing_kinds(given).tolist() == kinds


@pytest.mark.parametrize(("sense", "stands"), [("ends", False), ("stands", True)])
def test_a_newer_statement_in_other_forms_ends_the_opposite_one_and_nothing_that_looks_like_it(
    sense: str, stands: bool
):
    for texts in STATEMENTS["opposite"][sense]:
        kinds = standing_kinds(memories([("", "user", text) for text in texts]))
        assert (kinds[0] == kind_of(texts[0])) == stands, texts


@pytest.mark.parametrize("speaker", ["user", "Ann", "", "Ann Smith", "Will", "田中太郎", "محمد علي"])
def test_a_speakers_name_is_no_subject_and_a_reset_ends_that_speakers_instructions(speaker: str) -> None:
    statements = [(speaker, "Always answer in German."), ("Eve", "Never use emojis."), (speaker, "I prefer green tea.")]
    resets = ("Ignore all my rules.", "すべての指示を忘れてください。", "تجاهل كل تعليماتي.", "मेरे सभी निर्देश भूल जाओ।")
    for last, kind in (("You can stop it.", Kind.INSTRUCTION), *((text, Kind.STATEMENT) for text in resets)):
        given = memories([("", *each) for each in (*statements, (speaker, last))])
        kinds = standing_kinds(given).tolist()
        assert kinds[:3] == [kind, Kind.INSTRUCTION, Kind.PREFERENCE]


def test_thousands_of_statements_are_compared_in_little_memory() -> None:
    words = [f"{number * step % 9973}x" for number in range(5000) for step in range(1, 41)]
    texts = [" ".join(words[place : place + 40]) for place in range(0, len(words), 40)]
    contents = memories(
        [("", "", f"{('I prefer', 'I no longer prefer')[place % 2]} {text}") for place, text in enumerate(texts)]
    )
    tracemalloc.start()
    standing_kinds(contents)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_questions_have_a_form_and_ask_about_a_speaker_a_time_or_an_amount() -> None:
    for form, texts in STATEMENTS["form"].items():
        assert {form_of(text) for text in texts} == {Form[form]}
    for rules, (yes, no) in STATEMENTS["asks"].items():
        assert ({asks(rules, text) for text in yes}, {asks(rules, text) for text in no}) == ({True}, {False})


def test_a_speaker_is_a_person_by_role_or_else_by_name() -> None:
    for kind, names in STATEMENTS["speaker"].items():
        assert {name for name in names if is_person(name) != (kind == "person")} == set()
    assert not index({"text": "Always cite pages.", "role": "assistant"}, "Ana", None, ANALYZER).person


@pytest.mark.parametrize("words", ["how ", "hast du ", "\ufdfa "])
def test_a_question_of_any_length_is_looked_at_quickly_and_still_understood_by_its_end(words: str) -> None:
    question = words * (65_536 // len(words))
    began = time.process_time()
    assert form_of(question) == Form.FACT
    assert not asks("assistant", question)
    assert time.process_time() - began < 1.0
    assert asks("amount", f"{question}. When was it?")
