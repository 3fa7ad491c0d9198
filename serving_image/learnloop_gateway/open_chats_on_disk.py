"""Turns of the conversations under way, on disk: a gateway that is killed leaves them to its successor."""

from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from learnloop_gateway.open_chat import Row, Session
from learnloop_sdk.outbox import opened

JOURNAL_BYTES = 2**30
"""Of all conversations under way; with the spool less than the gateway's volume, whose pod would be evicted."""
_STATE = ("episode_id", "revision", "task", "metadata", "evidence", "clean", "private", "values", "rows", "turns")
"""Fields of a conversation in each row of the journal."""


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
