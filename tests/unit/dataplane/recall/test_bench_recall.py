"""The measure for a set of conversations, on one that is made up here: its reader and its figures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.recall.conversations import Conversation, Question, read
from bench.recall.measures import MEASURES, figures, measure

TOPICS = ("violin", "harbour", "saffron", "glacier", "lantern", "orchard", "compass", "tapestry", "beehive", "pottery")


def made_up(conversations: int = 2, sessions: int = 3) -> list[dict[str, Any]]:
    """Each turn has a topic of its own; each question names one, and its evidence is that turn."""
    found = []
    for number in range(conversations):
        spoken: dict[str, Any] = {"speaker_a": "Ann", "speaker_b": "Ben"}
        asked = []
        for session in range(1, sessions + 1):
            spoken[f"session_{session}_date_time"] = "1:56 pm on 8 May, 2023"
            spoken[f"session_{session}"] = [
                {
                    "speaker": "Ann" if place % 2 else "Ben",
                    "dia_id": f"D{session}:{place}",
                    "text": f"the {topic} of my {number}th friend keeps me busy in week {session}",
                }
                for place, topic in enumerate(TOPICS, 1)
            ]
            asked += [
                {"question": f"what about the {topic} in week {session}?", "evidence": [f"D{session}:{place}"]}
                for place, topic in enumerate(TOPICS, 1)
            ]
        asked[0] |= {"evidence": ["D1:1; D2:1"], "category": 4}
        asked += [{"question": "what was never said?", "evidence": []}, {"question": "who?", "evidence": ["D99:1"]}]
        found.append({"conversation": spoken, "qa": asked})
    return found


def written(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_a_file_is_read_with_its_turns_in_order_and_the_questions_that_have_evidence(tmp_path: Path) -> None:
    first, second = read(written(tmp_path / "set.json", made_up(sessions=11)))
    assert isinstance(second, Conversation)
    assert [turn.id for turn in first.turns[:2]] == ["D1:1", "D1:2"]
    assert first.turns[-1].session == "session_11", "sessions are in the order of their numbers"
    assert (first.turns[0].speaker, first.turns[0].text) == (
        "Ann",
        "the violin of my 0th friend keeps me busy in week 1",
    )
    assert len(first.questions) == 110, "a question whose evidence nobody said is none"
    assert first.questions[0].evidence == {"D1:1", "D2:1"}
    assert first.questions[0].category == "4"


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


def test_an_interval_holds_the_mean_and_is_the_same_each_time(tmp_path: Path) -> None:
    conversations = read(written(tmp_path / "set.json", made_up()))
    half = {
        each.name: [sorted(question.evidence) if place % 2 else [] for place, question in enumerate(each.questions)]
        for each in conversations
    }
    found = figures("arm", conversations, half)
    assert found == figures("arm", conversations, half)
    assert found["arm.r@10.low"] < found["arm.r@10"] == 0.5 < found["arm.r@10.high"]


def test_beams_directories_are_read_with_messages_as_turns(tmp_path: Path) -> None:
    chat = tmp_path / "100K" / "3"
    (chat / "probing_questions").mkdir(parents=True)
    messages = [
        {"id": 0, "role": "user", "content": "I prefer tea. ->-> 1,1"},
        {"id": 1, "role": "assistant", "content": "Noted."},
    ]
    written(chat / "chat.json", [{"batch_number": 1, "turns": [messages]}])
    asked = {
        "preference_following": [{"question": "What do I drink?", "source_chat_ids": {"first": [0]}}],
        "abstention": [{"question": "Who?"}],
    }
    written(chat / "probing_questions" / "probing_questions.json", asked)
    [conversation] = read(tmp_path)
    assert [(turn.speaker, turn.text) for turn in conversation.turns] == [
        ("user", "I prefer tea."),
        ("assistant", "Noted."),
    ]
    assert [(question.evidence, question.category) for question in conversation.questions] == [
        (frozenset({"0"}), "preference_following")
    ]
