"""A conversation under way: the row of tokens that its next turn extends, and its turns on disk.

A gateway that is killed leaves them to its successor.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from learnloop_api.wire.language import MAX_TURNS, ToolResult
from learnloop_gateway.chat_request import ChatMessage
from learnloop_sdk.outbox import opened

LARGEST = 4 * 2**20
JOURNAL_BYTES = 2**30
"""Of all conversations under way; with the spool less than the gateway's volume, whose pod would be evicted."""
_STATE = ("episode_id", "revision", "task", "metadata", "evidence", "clean", "private", "values", "rows", "turns")
"""Fields of a conversation in each row of the journal."""
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
        closed: its turns wait to be delivered.
        recorded: turns in the journal.
        size: bytes of turns in the journal.
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
    named: bool = False
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
        """It has as many turns, rows or bytes as a recorded conversation may: its later turns are not recorded."""
        return self.turns >= MAX_TURNS or self.rows >= MAX_TURNS or self.size >= LARGEST

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


class Journal:
    """Turns of conversations under way, in SQLite: each row has the conversation's state, and may have a turn."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError and sqlite3.Error."""
        self._rows = opened(
            folder / "turns.sqlite",
            JOURNAL_BYTES,
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            "CREATE TABLE IF NOT EXISTS turns (trajectory_id TEXT NOT NULL, state BLOB NOT NULL, step BLOB);"
            "CREATE INDEX IF NOT EXISTS by_trajectory ON turns (trajectory_id)",
        )

    def write(self, session: Session, step: dict[str, Any]) -> None:
        """Append a turn; raises sqlite3.Error."""
        self._append(session, _state(session) | {"turns": session.turns + 1}, orjson.dumps(step))
        session.recorded += 1

    def mark(self, session: Session) -> None:
        """Append the conversation's state if it has changed since the last row. Raises sqlite3.Error."""
        state = _state(session)
        if state != session.saved and (session.saved or session.private or not session.evidence):
            self._append(session, state, None)

    def _append(self, session: Session, state: dict[str, Any], step: bytes | None) -> None:
        row = session.trajectory_id, orjson.dumps(state | {"started_at": session.started_at.isoformat()}), step
        self._rows.execute("INSERT INTO turns VALUES (?, ?, ?)", row)
        session.saved = state
        session.size += len(step or b"")

    def steps(self, session: Session) -> list[dict[str, Any]]:
        """The turns of a conversation; raises sqlite3.Error."""
        statement = "SELECT step FROM turns WHERE trajectory_id = ? AND step IS NOT NULL ORDER BY rowid"
        return [orjson.loads(step) for (step,) in self._rows.execute(statement, (session.trajectory_id,))]

    def forget(self, session: Session) -> None:
        """Delete the conversation's rows; raises sqlite3.Error."""
        self._rows.execute("DELETE FROM turns WHERE trajectory_id = ?", (session.trajectory_id,))

    def left(self) -> list[Session]:
        """Conversations that an earlier process did not end. The next turn of each begins a new row."""
        statement = (
            "SELECT trajectory_id, state, count(step), coalesce(sum(length(step)), 0), max(rowid) FROM turns"
            " GROUP BY trajectory_id ORDER BY max(rowid)"
        )
        return [_restored(*row) for row in self._rows.execute(statement)]


def _state(session: Session) -> dict[str, Any]:
    fields = {name: getattr(session, name) for name in _STATE}
    return fields | {"metadata": dict(session.metadata), "values": dict(session.values)}


def _restored(trajectory_id: str, state: bytes, recorded: int, size: int, _: int) -> Session:
    last = orjson.loads(state)
    session = Session(
        **{name: last[name] for name in _STATE},
        trajectory_id=trajectory_id,
        started_at=datetime.fromisoformat(last["started_at"]),
        recorded=recorded,
        size=size,
    )
    session.saved = _state(session)
    if session.rows:
        session.row = Row(session.rows - 1, broken="restart")
    return session
