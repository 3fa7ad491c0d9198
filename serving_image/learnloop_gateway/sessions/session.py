"""One conversation: the tokens it consists of so far, and when a request goes on with them.

A request goes on when its messages begin with all that was said before, the model's own answer included, and when it
offers the same tools. Then its prompt is the tokens of before, and what the world said since. Everything else begins a
new row of tokens: what a client changed in the history is never guessed at.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from learnloop_api.wire.language import MAX_TURNS, ToolResult
from learnloop_gateway.openai_api.requests import ChatMessage

Said = tuple[Any, ...]
"""A message as two are compared: see ChatMessage.said."""


@dataclass(slots=True)
class Row:
    """Tokens that only grow.

    Attributes:
        ids: of the last prompt and its answer.
        said: the messages they stand for; for /v1/completions none.
        offered: the tools of its requests, as JSON.
        ended: the last answer drew an id that ends it.
        broken: why nothing can be appended; "" where something can.
    """

    number: int
    ids: list[int] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    offered: str = ""
    ended: bool = False
    broken: str = ""


@dataclass(slots=True)
class Session:
    """A conversation under way.

    Attributes:
        trajectory_id: what its turns are recorded under.
        metadata: of the trajectory.
        evidence: its ending says something of the arm: nobody pinned it there, and the arm gave every answer.
        clean: nothing that redaction would take out was said in it.
        private: somebody asked that nothing more of it be recorded.
        joined: it began elsewhere: another process has its first turns.
        closed: its turns were handed over.
        recorded: turns in the journal.
        size: bytes of them.
        kept: what the journal says of it beside its turns; empty: nothing is written yet.
        busy: requests being answered.
    """

    episode_id: str
    revision: str
    task: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    continues: str = ""
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
    kept: dict[str, Any] = field(default_factory=dict)
    busy: int = 0
    used: float = field(default_factory=time.monotonic)
    values: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("turns", "tool_calls", "input_tokens", "output_tokens"), 0.0)
    )

    @property
    def full(self) -> bool:
        """It has as many turns or rows as a recorded conversation may."""
        return self.turns >= MAX_TURNS or self.rows >= MAX_TURNS

    def following_part(self) -> "Session":
        """The same conversation, in a trajectory of its own."""
        return Session(
            self.episode_id,
            self.revision,
            self.task,
            self.metadata,
            continues=self.trajectory_id,
            evidence=self.evidence,
            pinned=self.pinned,
            clean=self.clean,
            private=self.private,
        )

    def following(self, messages: Sequence[ChatMessage], offered: str) -> tuple[list[ChatMessage], str]:
        """What the world said since the last answer, where the request goes on with the row; else why it does not."""
        row = self.row
        if row is None:
            return [], ""
        if row.broken:
            return [], row.broken
        if row.offered != offered:
            return [], "tools"
        if len(messages) <= len(row.said):
            return [], "history"
        if any(message.said != known for message, known in zip(messages, row.said, strict=False)):
            return [], "history"
        new = list(messages[len(row.said) :])
        if any(message.role == "assistant" for message in new):
            return [], "history"
        return new, ""

    def begin_row(self) -> Row:
        """A new row of tokens; nothing was said in it yet."""
        self.row = Row(self.rows)
        self.rows += 1
        return self.row

    def count(self, asked: int, said: int, calls: int) -> None:
        """Sum up a turn, for a RewardPolicy to use; the names are those of the SDK's Conversation."""
        self.values["turns"] += 1
        self.values["tool_calls"] += calls
        self.values["input_tokens"] += asked
        self.values["output_tokens"] += said


def results(new: Sequence[ChatMessage]) -> list[ToolResult]:
    """What tools answered, among new messages."""
    found = [ToolResult(call_id=one.tool_call_id or "", content=one.text) for one in new if one.role == "tool"]
    return found[-128:]


def newest(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages after the last answer of an assistant: what is new where nothing is known of the rest."""
    last = max((place for place, one in enumerate(messages) if one.role == "assistant"), default=-1)
    return list(messages[last + 1 :])
