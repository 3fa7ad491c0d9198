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
from learnloop_sdk.spool import KeyNotGiven, SpoolKeys

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
        """Messages since the last answer, where the request goes on with the row; else the reason why it does not."""
        row = self.row
        if row is None:
            return [], ""
        if row.broken:
            return [], row.broken
        if row.offered != offered:
            return [], "tools"
        if len(messages) <= len(row.said):
            return [], "history"
        if any(message.said != existing for message, existing in zip(messages, row.said, strict=False)):
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
    """Results of tools among new messages."""
    items = [ToolResult(call_id=one.tool_call_id or "", content=one.text) for one in new if one.role == "tool"]
    return items[-128:]


def newest(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages after the last answer of an assistant: what is new where nothing is known of the rest."""
    last = max((place for place, one in enumerate(messages) if one.role == "assistant"), default=-1)
    return list(messages[last + 1 :])


log = logging.getLogger(__name__)
_FILE = re.compile(r"[0-9a-f]{32}\.jsonl")
LONGEST = 64 * 2**20


class Journal:
    """The folder.

    Args:
        keys: seal the turns; without any they lie in the open, for the process's user alone.
    """

    def __init__(self, folder: Path, keys: SpoolKeys | None = None) -> None:
        self._keys = keys or SpoolKeys()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder

    def write(self, session: Session, step: dict[str, Any]) -> None:
        """Append a turn; raises OSError. One write: it is there whole or not at all, but for a full disk."""
        turn = {"step": step, "values": session.values, "rows": session.rows, "turns": session.turns + 1}
        self._append(session, turn)
        session.recorded += 1

    def mark(self, session: Session) -> None:
        """Append what has changed of the conversation since its last line, if anything has. Raises OSError."""
        if _changes(session) and (session.kept or session.private or not session.evidence):
            self._append(session, {})

    def _append(self, session: Session, told: dict[str, Any]) -> None:
        changes = _changes(session)
        line = self._line(session, told | changes)
        if not session.kept:
            line = b"%b\n%b" % (self._line(session, _head(session)), line)
        target = os.open(self._path(session), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if os.write(target, line + b"\n") != len(line) + 1:
                os.write(target, b"\n")
                raise OSError("the disk of the journal is full")
        finally:
            os.close(target)
        session.kept |= changes
        session.size += len(line)

    def steps(self, session: Session) -> list[dict[str, Any]]:
        """The turns of a conversation; raises OSError."""
        return [line["step"] for line in self._lines(self._path(session)) if "step" in line]

    def forget(self, session: Session) -> None:
        """The conversation is somebody else's now."""
        self._path(session).unlink(missing_ok=True)

    def left(self) -> list[Session]:
        """Conversations that an earlier process did not end. What is said next in one begins a new row."""
        items = []
        for path in sorted(self._folder.iterdir()):
            if not _FILE.fullmatch(path.name):
                continue
            try:
                if session := _session(path, list(self._lines(path))):
                    items.append(session)
                else:
                    path.unlink(missing_ok=True)  # cut off in its first line: nobody was told that it was recorded
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.error("journal %s cannot be read and is left where it is: %s", path, error)
        return items

    def _path(self, session: Session) -> Path:
        return self._folder / f"{session.trajectory_id}.jsonl"

    def _line(self, session: Session, told: dict[str, Any]) -> bytes:
        line = orjson.dumps(told)
        sealed = self._keys.seal(line, session.trajectory_id)
        return line if sealed is line else base64.b64encode(sealed)

    def _lines(self, path: Path) -> Iterator[dict[str, Any]]:
        """Whole lines; one that was cut off says nothing.

        Raises:
            OSError: the file is too long. KeyNotGiven: a line is sealed by another key.
        """
        if path.stat().st_size > LONGEST:
            raise OSError(f"{path} is longer than {LONGEST} bytes")
        for line in path.read_bytes().split(b"\n"):
            try:
                result = orjson.loads(self._plain(line, path.stem)) if line else None
            except KeyNotGiven:
                raise
            except ValueError:
                continue
            if isinstance(result, dict):
                yield result

    def _plain(self, line: bytes, name: str) -> bytes:
        return line if line.startswith(b"{") else self._keys.open(base64.b64decode(line, validate=True), name)


def _head(session: Session) -> dict[str, Any]:
    return {
        "episode_id": session.episode_id,
        "revision": session.revision,
        "task": session.task,
        "metadata": session.metadata,
        "continues": session.continues,
        "started_at": session.started_at.isoformat(),
        "evidence": session.evidence,
    }


def _changes(session: Session) -> dict[str, Any]:
    now = {
        "metadata": dict(session.metadata),
        "evidence": session.evidence,
        "clean": session.clean,
        "private": session.private,
    }
    return {name: value for name, value in now.items() if session.kept.get(name) != value}


def _session(path: Path, lines: list[dict[str, Any]]) -> Session | None:
    if not lines or "episode_id" not in lines[0]:
        return None
    head, more = lines[0], lines[1:]
    turns = [line for line in more if "step" in line]
    fields: dict[str, Any] = {"metadata": head["metadata"], "evidence": head["evidence"]}
    for line in more:
        fields |= {name: line[name] for name in ("metadata", "evidence", "clean", "private") if name in line}
    session = Session(
        episode_id=head["episode_id"],
        revision=head["revision"],
        task=head["task"],
        metadata=dict(fields["metadata"]),
        continues=head["continues"],
        trajectory_id=path.stem,
        started_at=datetime.fromisoformat(head["started_at"]),
        evidence=fields["evidence"],
        clean=fields.get("clean", False),
        private=fields.get("private", False),
        recorded=len(turns),
        size=path.stat().st_size,
        kept=fields,
    )
    if turns:
        session.values, session.rows, session.turns = turns[-1]["values"], turns[-1]["rows"], turns[-1]["turns"]
        session.row = Row(max(0, session.rows - 1), broken="restart")
    return session if more else None
