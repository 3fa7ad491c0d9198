"""A conversation under way, and the row of tokens that its next turn extends."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from learnloop_api.wire.language import MAX_TURNS, ToolResult
from learnloop_gateway.chat_request import ChatMessage

LARGEST = 4 * 2**20
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
