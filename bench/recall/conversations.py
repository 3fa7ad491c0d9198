"""Sets of conversations as LoCoMo (Maharana et al., 2024, arXiv 2402.17753), REALTALK and BEAM write them.

A conversation is a JSON object with `session_1`, `session_2`, … (lists of turns with `speaker`, `dia_id` and `text`,
and `blip_caption` where a picture was shown), by themselves or within `conversation`, and `qa` (questions with
`question`, `evidence`, a list of turns' ids, and `category`). A file holds one of them or a list. REALTALK's turns have
`clean_text`. BEAM has a directory for each conversation: `chat.json`, batches of messages, and
`probing_questions/probing_questions.json`, whose `source_chat_ids` are the evidence.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_SESSION = re.compile(r"session_(\d+)$")
_NO_NAME = re.compile(r"[^a-z0-9]+")
_TURN = re.compile(r"D\d+:\d+")
_MARK = re.compile(r"\s*->->\s*[\d,]+\s*$")
PICKED_ON = frozenset({"26", "30", "41", "42", "43"})
"""LoCoMo's conversations that the constants of recall were picked on: figures of these alone prove nothing."""


@dataclass(frozen=True)
class Turn:
    """One utterance, by its conversation's own id."""

    id: str
    session: str
    speaker: str
    text: str


@dataclass(frozen=True)
class Question:
    """A question, and the turns that answer it."""

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
    if chats := sorted(path.rglob("chat.json")) if path.is_dir() else []:
        return list(_as_agents(_beam(chat) for chat in chats))
    files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
    if not files:
        raise SystemExit(f"{path}: holds no *.json; give a directory of conversations as LoCoMo writes them")
    conversations = list(_as_agents(conversation for file in files for conversation in _of_file(file)))
    if not any(conversation.questions for conversation in conversations):
        raise SystemExit(f"{path}: no question's evidence names a turn; qa[].evidence must hold dia_id's")
    return conversations


def was_tuned_on(conversation: Conversation) -> bool:
    """Were constants of recall picked on it?"""
    return conversation.name.removeprefix("conv-") in PICKED_ON


def _as_agents(conversations: Iterable[Conversation]) -> Iterator[Conversation]:
    """With names that agents may have, each of them once."""
    taken: set[str] = set()
    for number, conversation in enumerate(conversations):
        name = _NO_NAME.sub("-", conversation.name.lower())[:50].strip("-")
        if not name or name in taken:
            name = f"{name or 'conversation'}-{number}"
        taken.add(name)
        yield replace(conversation, name=name)


def _of_file(path: Path) -> list[Conversation]:
    try:
        items = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path}: {error}; give a JSON file of conversations") from None
    if not isinstance(items, list):
        return [_conversation(items, str(path), path.stem)]
    return [_conversation(item, f"{path}[{number}]", _name(item, path, number)) for number, item in enumerate(items)]


def _name(item: Any, path: Path, number: int) -> str:
    """LoCoMo's own, `conv-26`, where there is one."""
    own = item.get("sample_id") if isinstance(item, dict) else None
    return own if isinstance(own, str) and own else f"{path.stem}-{number}"


def _conversation(item: Any, where: str, name: str) -> Conversation:
    spoken = item.get("conversation", item) if isinstance(item, dict) else None
    sessions = sorted(
        (key for key in spoken if _SESSION.match(key)) if isinstance(spoken, dict) else (),
        key=lambda key: int(key.split("_")[1]),
    )
    if not sessions or not isinstance(spoken, dict):
        raise SystemExit(f"{where}: has no `session_1`, neither by itself nor in `conversation`")
    turns = [_turn(turn, session, f"{where}.{session}") for session in sessions for turn in spoken[session] or ()]
    ids = {turn.id for turn in turns}
    questions = []
    for entry in item.get("qa", ()):
        # Some of LoCoMo's own evidence is written as "D8:6; D9:17", and some of it names no turn at all.
        evidence = frozenset(_TURN.findall(" ".join(map(str, entry.get("evidence") or ())))) & ids
        if evidence:
            questions.append(Question(str(entry["question"]), evidence, str(entry.get("category", ""))))
    return Conversation(name, tuple(turns), tuple(questions))


def _turn(turn: Any, session: str, where: str) -> Turn:
    try:
        text = str(turn["text"] if "text" in turn else turn["clean_text"])
        caption = turn.get("blip_caption")
        spoken = f"{text} [shows {caption}]" if caption else text
        return Turn(str(turn["dia_id"]), session, str(turn["speaker"]), spoken)
    except (KeyError, TypeError, AttributeError) as error:
        raise SystemExit(f"{where}: a turn needs speaker, dia_id and text ({error} is missing)") from None


def _beam(chat: Path) -> Conversation:
    """One of BEAM's; a message ends with a mark of its place, which is left out."""
    try:
        turns = tuple(
            Turn(str(message["id"]), str(batch["batch_number"]), message["role"], _MARK.sub("", message["content"]))
            for batch in json.loads(chat.read_text())
            for group in batch["turns"]
            for message in group
        )
        probes = json.loads((chat.parent / "probing_questions" / "probing_questions.json").read_text())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{chat}: {error}; give BEAM's chat.json and probing_questions.json") from None
    ids = {turn.id for turn in turns}
    questions = []
    for category, items in probes.items():
        for item in items:
            if evidence := frozenset(_ids(item.get("source_chat_ids"))) & ids:
                questions.append(Question(str(item["question"]), evidence, category))
    return Conversation(f"beam-{chat.parent.name}", turns, tuple(questions))


def _ids(value: Any) -> Iterator[str]:
    if isinstance(value, int):
        yield str(value)
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _ids(item)
