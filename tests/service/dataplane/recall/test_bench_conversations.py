"""The measure for a set of conversations, on one that is made up here: its reader, its figures, its refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.memory.conversations import ARMS, Conversation, ranks, read, run

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
    assert first.turns[0].text == "Ann: the violin of my 0th friend keeps me busy in week 1"
    assert len(first.questions) == 110, "a question whose evidence nobody said is none"
    assert first.questions[0].evidence == {"D1:1", "D2:1"}
    assert first.questions[0].category == "4"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([{"qa": []}], "has no object `conversation`"),
        ([{"conversation": {"session_1": [{"speaker": "Ann"}]}}], "a turn needs speaker, dia_id and text"),
        ([{"conversation": {"session_1": []}, "qa": []}], "no question's evidence names a turn"),
    ],
)
def test_a_file_of_another_shape_is_refused_with_what_is_missing(tmp_path: Path, content: Any, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        read(written(tmp_path / "set.json", content))


def test_the_measures_are_those_of_the_field() -> None:
    order = [f"t{place}" for place in range(20)]
    found = ranks(order, frozenset({"t1", "t3", "t15", "elsewhere"}))
    assert found == {"recall_at_10": 0.5, "precision_at_10": 0.2, "hit_at_10": 1.0, "mrr": 0.5}
    assert set(ranks(order, frozenset({"elsewhere"})).values()) == {0.0}


@pytest.mark.parametrize("embedder", ["hashing", "onnx"])
def test_every_arm_is_measured_through_the_service(tmp_path: Path, embedder: str) -> None:
    settings = {"EMBEDDER": f"onnx://{model(tmp_path / 'model')}"} if embedder == "onnx" else {}
    found = run(read(written(tmp_path / "set.json", made_up(conversations=1))), **settings)
    assert {f"{arm}_recall_at_10" for arm in ARMS} <= found.keys()
    assert found["bm25_recall_at_10"] == 1.0
    assert found["ours_recall_at_10"] >= 0.9
    assert found["ours_recall_at_10_category_4"] > 0
    if embedder == "onnx":
        assert found["vector_recall_at_10"] < 0.9, "a model that knows none of these words finds next to nothing"
