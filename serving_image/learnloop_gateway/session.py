"""A conversation under way: the row of tokens that its next turn extends, and its journal on disk."""

import base64
import logging
import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from learnloop_api.wire.language import MAX_TURNS, ToolResult
from learnloop_gateway.requests import ChatMessage
from learnloop_sdk.outbox import KeyNotGiven, SpoolKeys

MessageKey = tuple[Any, ...]
"""See ChatMessage.key."""


@dataclass(slots=True)
class Row:
    """Tokens that only grow.

    Attributes:
        ids: of the last prompt and its answer.
        keys: of the messages they stand for.
        offered: the tools of its requests, as JSON.
        ended: the last answer drew an id that ends it.
        broken: why nothing can be appended; "" if something can.
    """

    number: int
    ids: list[int] = field(default_factory=list)
    keys: list[MessageKey] = field(default_factory=list)
    offered: str = ""
    ended: bool = False
    broken: str = ""


@dataclass(slots=True)
class Session:
    """A conversation under way.

    Attributes:
        trajectory_id: what its turns are recorded under.
        metadata: of the trajectory.
        evidence: its ending counts for the arm: the arm gave every answer, and no caller chose the arm.
        clean: it contains nothing that redaction would change.
        private: a request had `store: false`: no further turn is recorded.
        joined: another process has its first turns.
        closed: its turns were handed to the recorder.
        recorded: turns in the journal.
        size: bytes in the journal.
        saved: its state as the journal has it; empty: the journal has nothing.
        busy: requests being answered.
    """

    episode_id: str
    revision: str
    task: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    trajectory_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    row: Row | None = None
    rows: int = 0
    turns: int = 0
    recorded: int = 0
    evidence: bool = True
    pinned: bool = False
    clean: bool = True
    private: bool = False
    joined: bool = False
    closed: bool = False
    size: int = 0
    saved: dict[str, Any] = field(default_factory=dict)
    busy: int = 0
    used: float = field(default_factory=time.monotonic)
    values: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("turns", "tool_calls", "input_tokens", "output_tokens"), 0.0)
    )

    @property
    def full(self) -> bool:
        """It has as many turns or rows as a recorded conversation may."""
        return self.turns >= MAX_TURNS or self.rows >= MAX_TURNS

    def next_part(self) -> "Session":
        """The same conversation, in another trajectory."""
        same = ("task", "metadata", "evidence", "pinned", "clean", "private")
        part = Session(self.episode_id, self.revision, joined=True, **{name: getattr(self, name) for name in same})
        part.metadata = dict(self.metadata)
        return part

    def following(self, messages: Sequence[ChatMessage], offered: str) -> tuple[list[ChatMessage], str]:
        """The messages since the last answer if the request continues the row; else the reason why it does not."""
        row = self.row
        if row is None:
            return [], ""
        if row.broken:
            return [], row.broken
        if row.offered != offered:
            return [], "tools"
        old, new = messages[: len(row.keys)], list(messages[len(row.keys) :])
        if not new or [message.key for message in old] != row.keys or any(one.role == "assistant" for one in new):
            return [], "history"
        return new, ""

    def begin_row(self) -> Row:
        """Begin an empty row of tokens."""
        self.row = Row(self.rows)
        self.rows += 1
        return self.row

    def count(self, prompt: int, answer: int, calls: int) -> None:
        """Add a turn to the outcome's values; the names are those of the SDK's Conversation."""
        for name, value in zip(self.values, (1, calls, prompt, answer), strict=True):
            self.values[name] += value


def results(new: Sequence[ChatMessage]) -> list[ToolResult]:
    """Results of tools among new messages."""
    items = [ToolResult(call_id=one.tool_call_id or "", content=one.text) for one in new if one.role == "tool"]
    return items[-128:]


def newest(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages after the assistant's last answer."""
    last = max((place for place, one in enumerate(messages) if one.role == "assistant"), default=-1)
    return list(messages[last + 1 :])


log = logging.getLogger(__name__)
_FILE = re.compile(r"[0-9a-f]{32}\.jsonl")
LONGEST = 64 * 2**20
_STATE = ("episode_id", "revision", "task", "metadata", "evidence", "clean", "private", "values", "rows", "turns")
"""Fields of a conversation in each line of its journal."""


class Journal:
    """Turns of conversations under way, a file for each: every line has the conversation's state, and may have a turn.

    Args:
        keys: seal the turns; without any they are readable by the process's user.
    """

    def __init__(self, folder: Path, keys: SpoolKeys | None = None) -> None:
        self._keys = keys or SpoolKeys()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder

    def write(self, session: Session, step: dict[str, Any]) -> None:
        """Append a turn; raises OSError. One write: the line is whole or, on a full disk, ignored."""
        self._append(session, _state(session) | {"turns": session.turns + 1}, {"step": step})
        session.recorded += 1

    def mark(self, session: Session) -> None:
        """Append the conversation's state if it has changed since the last line. Raises OSError."""
        state = _state(session)
        if state != session.saved and (session.saved or session.private or not session.evidence):
            self._append(session, state, {})

    def _append(self, session: Session, state: dict[str, Any], turn: dict[str, Any]) -> None:
        text = orjson.dumps(state | turn | {"started_at": session.started_at.isoformat()})
        sealed = self._keys.seal(text, session.trajectory_id)
        line = (text if sealed is text else base64.b64encode(sealed)) + b"\n"
        target = os.open(self._path(session), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.write(target, line) != len(line):
                os.write(target, b"\n")
                raise OSError("the disk of the journal is full")
        finally:
            os.close(target)
        session.saved = state
        session.size += len(line)

    def steps(self, session: Session) -> list[dict[str, Any]]:
        """The turns of a conversation; raises OSError."""
        return [line["step"] for line in self._lines(self._path(session)) if "step" in line]

    def forget(self, session: Session) -> None:
        """Delete the conversation's file."""
        self._path(session).unlink(missing_ok=True)

    def left(self) -> list[Session]:
        """Conversations that an earlier process did not end. The next turn of each begins a new row."""
        items = []
        for path in sorted(self._folder.iterdir()):
            if not _FILE.fullmatch(path.name):
                continue
            try:
                if lines := list(self._lines(path)):
                    items.append(_restored(path, lines))
                else:
                    path.unlink(missing_ok=True)  # its first line was cut off: no answer ended
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.error("journal %s cannot be read and stays in place: %s", path, error)
        return items

    def _path(self, session: Session) -> Path:
        return self._folder / f"{session.trajectory_id}.jsonl"

    def _lines(self, path: Path) -> Iterator[dict[str, Any]]:
        """Whole lines; one that was cut off is left out.

        Raises:
            OSError: the file is too long. KeyNotGiven: a line is sealed by another key.
        """
        if path.stat().st_size > LONGEST:
            raise OSError(f"{path} is longer than {LONGEST} bytes")
        for line in filter(None, path.read_bytes().split(b"\n")):
            try:
                sealed = not line.startswith(b"{")
                text = self._keys.open(base64.b64decode(line, validate=True), path.stem) if sealed else line
                yield orjson.loads(text)
            except KeyNotGiven:
                raise
            except ValueError:
                continue


def _state(session: Session) -> dict[str, Any]:
    fields = {name: getattr(session, name) for name in _STATE}
    return fields | {"metadata": dict(session.metadata), "values": dict(session.values)}


def _restored(path: Path, lines: list[dict[str, Any]]) -> Session:
    last = lines[-1]
    session = Session(
        **{name: last[name] for name in _STATE},
        trajectory_id=path.stem,
        started_at=datetime.fromisoformat(last["started_at"]),
        recorded=sum("step" in line for line in lines),
        size=path.stat().st_size,
    )
    session.saved = _state(session)
    if session.rows:
        session.row = Row(session.rows - 1, broken="restart")
    return session
