"""Sets of conversations as LoCoMo writes them (Maharana et al., 2024, arXiv 2402.17753): turns, questions, evidence.

A conversation is a JSON object with `session_1`, `session_2`, … (lists of turns with `speaker`, `dia_id` and `text`,
and `blip_caption` where a picture was shown), by themselves or within `conversation`, and `qa` (questions with
`question`, `evidence`, a list of turns' ids, and `category`). A file holds one of them or a list.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SESSION = re.compile(r"session_(\d+)$")
_AGENT = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_TURN = re.compile(r"D\d+:\d+")
PICKED_ON = frozenset({"26", "30", "41", "42", "43"})
"""LoCoMo's conversations that the constants of recall were picked on: figures of these alone prove nothing."""


@dataclass(frozen=True)
class Turn:
    """One utterance, by its conversation's own id."""

    id: str
    session: str
    text: str


@dataclass(frozen=True)
class Question:
    """What is asked, and the turns that answer it."""

    text: str
    evidence: frozenset[str]
    category: str


@dataclass(frozen=True)
class Conversation:
    """Its turns in the order in which they were said, and its questions that have evidence."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


def read(path: Path) -> list[Conversation]:
    """The conversations of a file, or of all `*.json` in a directory, in the order of the files' names.

    Raises:
        SystemExit: says what is missing where.
    """
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    if not files:
        raise SystemExit(f"{path}: holds no *.json; give a directory of conversations as LoCoMo writes them")
    found = [conversation for file in files for conversation in _of_file(file)]
    if not any(conversation.questions for conversation in found):
        raise SystemExit(f"{path}: no question's evidence names a turn; qa[].evidence must hold dia_id's")
    return found


def seen(conversation: Conversation) -> bool:
    """Were constants of recall picked on it?"""
    return conversation.name.removeprefix("conv-") in PICKED_ON


def split(conversations: Sequence[Conversation]) -> tuple[list[Conversation], list[Conversation]]:
    """Those that may teach and the others: what constants were picked on, or else the first half."""
    taught = [each for each in conversations if seen(each)]
    if not taught or len(taught) == len(conversations):
        middle = len(conversations) // 2
        return list(conversations[:middle]), list(conversations[middle:])
    return taught, [each for each in conversations if not seen(each)]


def _of_file(path: Path) -> list[Conversation]:
    try:
        items = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: {error}; give a JSON file of conversations") from None
    if not isinstance(items, list):
        return [_conversation(items, str(path), path.stem)]
    return [_conversation(item, f"{path}[{number}]", _name(item, path, number)) for number, item in enumerate(items)]


def _name(item: Any, path: Path, number: int) -> str:
    """LoCoMo's own, `conv-26`, where it can be an agent's."""
    own = item.get("sample_id") if isinstance(item, dict) else None
    return own if isinstance(own, str) and _AGENT.fullmatch(own) else f"{path.stem}-{number}"


def _conversation(item: Any, where: str, name: str) -> Conversation:
    spoken = item.get("conversation", item) if isinstance(item, dict) else None
    sessions = sorted(
        (key for key in spoken if _SESSION.match(key)) if isinstance(spoken, dict) else (),
        key=lambda key: int(key.split("_")[1]),
    )
    if not sessions or not isinstance(spoken, dict):
        raise SystemExit(f"{where}: has no `session_1`, neither by itself nor in `conversation`")
    turns = [_turn(turn, session, f"{where}.{session}") for session in sessions for turn in spoken[session] or ()]
    known = {turn.id for turn in turns}
    questions = []
    for asked in item.get("qa", ()):
        # Some of LoCoMo's own evidence is written as "D8:6; D9:17", and some of it names no turn at all.
        evidence = frozenset(_TURN.findall(" ".join(map(str, asked.get("evidence") or ())))) & known
        if evidence:
            questions.append(Question(str(asked["question"]), evidence, str(asked.get("category", ""))))
    return Conversation(name, tuple(turns), tuple(questions))


def _turn(turn: Any, session: str, where: str) -> Turn:
    try:
        text = f"{turn['speaker']}: {turn['text']}"
        caption = turn.get("blip_caption")
        return Turn(str(turn["dia_id"]), session, f"{text} [shows {caption}]" if caption else text)
    except (KeyError, TypeError, AttributeError) as error:
        raise SystemExit(f"{where}: a turn needs speaker, dia_id and text ({error} is missing)") from None
