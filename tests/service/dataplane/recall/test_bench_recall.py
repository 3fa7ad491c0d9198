"""The measure for a set of conversations, on one that is made up here: its reader, its figures, its refusals."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.recall.asked import Asked, service
from bench.recall.conversations import Conversation, Question, read
from bench.recall.measures import MEASURES, figures, measure

from ..embedding.test_embedders import model

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


def test_conversations_have_names_that_agents_may_have_each_once(tmp_path: Path) -> None:
    first, second = made_up()
    for name in ("Chat_1_Ann & Ben.json", "chat-1-ann-ben.json", "対話.json"):
        written(tmp_path / name, first)
    written(tmp_path / "z.json", [first | {"sample_id": "conv-26"}, second | {"sample_id": "conv-26"}])
    names = [conversation.name for conversation in read(tmp_path)]
    assert names[0] == "chat-1-ann-ben"
    assert "conv-26" in names
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", name) for name in names)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([{"qa": []}], "has no `session_1`"),
        ([{"conversation": {"session_1": [{"speaker": "Ann"}]}}], "a turn needs speaker, dia_id and text"),
        ([{"conversation": {"session_1": []}, "qa": []}], "no question's evidence names a turn"),
    ],
)
def test_a_file_of_another_shape_is_refused_with_what_is_missing(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        read(written(tmp_path / "set.json", content))


def test_a_directory_holds_one_conversation_in_each_file_with_or_without_an_object_around_the_sessions(
    tmp_path: Path,
) -> None:
    first, second = made_up()
    written(tmp_path / "a.json", first)
    written(tmp_path / "b.json", second["conversation"] | {"qa": second["qa"]})
    found = read(tmp_path)
    assert [conversation.name for conversation in found] == ["a", "b"]
    assert [len(conversation.questions) for conversation in found] == [30, 30]
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match=r"holds no \*.json"):
        read(tmp_path / "empty")


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


@pytest.mark.parametrize("embedder", ["none", "onnx"])
def test_questions_are_asked_of_the_service(tmp_path: Path, embedder: str) -> None:
    settings = {"EMBEDDER": f"onnx://{model(tmp_path / 'model')}"} if embedder == "onnx" else {}
    conversations = read(written(tmp_path / "set.json", made_up()))
    with service(conversations, **settings) as asked:
        found = figures("default", conversations, asked.ask())
        costs = asked.costs()
    assert found["default.r@10"] >= 0.9
    assert found["default.r@10.category_4"] > 0
    assert 0 < costs["ms.p50"] <= costs["ms.p99"]


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


class Half:
    """A service whose embedder is away for the first answers to a question."""

    def __init__(self, away: int) -> None:
        self.away = away
        self.asked = 0

    def post(self, path: str, body: Any) -> Any:
        self.asked += 1
        degraded = ["embedder"] if self.asked <= self.away else []
        return {"degraded": degraded, "query": body}


def asked_of(product: Any) -> Asked:
    asked = Asked.__new__(Asked)
    asked.product = product
    return asked


def test_an_answer_without_the_embedder_is_asked_for_again_and_never_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.recall.asked.PAUSE_SECONDS", 0.0)
    queries = [{"context": str(number)} for number in range(3)]
    answers = asked_of(Half(away=2)).retrieve(queries)
    assert [answer["query"] for answer in answers] == queries
    assert not any(answer["degraded"] for answer in answers)
    with pytest.raises(SystemExit, match="no figures of this embedder"):
        asked_of(Half(away=1000)).retrieve(queries)


def test_figures_of_conversations_that_constants_were_picked_on_are_told_apart(tmp_path: Path) -> None:
    for name in ("26", "44", "47"):
        written(tmp_path / f"{name}.json", made_up(1)[0])
    conversations = read(tmp_path)
    none = {each.name: [[] for _ in each.questions] for each in conversations}
    all_found = {each.name: [sorted(question.evidence) for question in each.questions] for each in conversations}
    found = figures("arm", conversations, all_found | {"26": none["26"]})
    assert found["arm.r@10"] == pytest.approx(2 / 3, abs=1e-3)
    assert found["arm.r@10.unseen"] == 1.0
