"""Turns of conversations that are under way, on disk: one file each, a line a turn, written before the answer ends.
With a spool key a line is the Base64 of an envelope. A line without a turn says what has changed of the conversation:
what a person asked of it, and what it proves, has to outlive the process as the turns do.

A process that is killed loses no turn: what was written stands in the kernel's cache or on the disk, and the next
process finds it. A machine that loses its power may lose the last seconds; a conversation that ended was synchronised.
"""

import base64
import logging
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from learnloop_gateway.sessions.session import Row, Session
from learnloop_sdk.recording.spool_keys import KeyNotGiven, SpoolKeys

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
        found = []
        for path in sorted(self._folder.iterdir()):
            if not _FILE.fullmatch(path.name):
                continue
            try:
                if session := _session(path, list(self._lines(path))):
                    found.append(session)
                else:
                    path.unlink(missing_ok=True)  # cut off in its first line: nobody was told that it was recorded
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.error("journal %s cannot be read and is left where it is: %s", path, error)
        return found

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
                found = orjson.loads(self._plain(line, path.stem)) if line else None
            except KeyNotGiven:
                raise
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found

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
    kept: dict[str, Any] = {"metadata": head["metadata"], "evidence": head["evidence"]}
    for line in more:
        kept |= {name: line[name] for name in ("metadata", "evidence", "clean", "private") if name in line}
    session = Session(
        episode_id=head["episode_id"],
        revision=head["revision"],
        task=head["task"],
        metadata=dict(kept["metadata"]),
        continues=head["continues"],
        trajectory_id=path.stem,
        started_at=datetime.fromisoformat(head["started_at"]),
        evidence=kept["evidence"],
        clean=kept.get("clean", False),
        private=kept.get("private", False),
        recorded=len(turns),
        size=path.stat().st_size,
        kept=kept,
    )
    if turns:
        session.values, session.rows, session.turns = turns[-1]["values"], turns[-1]["rows"], turns[-1]["turns"]
        session.row = Row(max(0, session.rows - 1), broken="restart")
    return session if more else None
