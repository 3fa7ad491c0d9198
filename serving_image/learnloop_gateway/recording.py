"""Open conversations of this process, and the delivery of each as one trajectory."""

import asyncio
import logging
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from learnloop_api import names
from learnloop_gateway.open_chat import Journal, Session
from learnloop_sdk import errors, outbox
from learnloop_sdk.trajectory_encoding import default_redactor, encoded, step
from learnloop_serving.server_metrics import Families

log = logging.getLogger(__name__)
LONGEST_CACHED = 16_384
Status = Literal["completed", "error", "withdrawn"]


class Recording:
    """The journal of turns, and the delivery of conversations.

    Args:
        folder: of conversations under way and of undelivered trajectories; one process to a folder.
        agent: the LearningAgent that the experience belongs to; "": nothing is recorded.
        send: delivers a trajectory; None: nothing is recorded.
    """

    def __init__(self, folder: Path, agent: str, model_deployment: str, send: outbox.Send | None) -> None:
        self._agent, self._model_deployment = agent, model_deployment
        self._redactor = default_redactor()
        # The same system prompt comes with every conversation.
        self._is_clean = lru_cache(maxsize=512)(lambda text: self._redactor(text) == text)
        self.counters = errors.Counters()
        self.on = bool(agent) and send is not None
        self._journal = Journal(folder)
        self._delivery = outbox.Delivery(outbox.Spool(folder / "spool.sqlite"), send or _nowhere, self.counters)

    def start(self) -> list[Session]:
        """Begin to deliver; returns the conversations that an earlier process did not end."""
        if not self.on:
            return []
        self._delivery.start()
        return self._journal.left()

    def is_clean(self, text: str) -> bool:
        """Would redaction leave the text, and so its tokens, unchanged?"""
        return self._is_clean(text) if len(text) <= LONGEST_CACHED else self._redactor(text) == text

    def turn(self, session: Session, step: dict[str, Any]) -> bool:
        """Write a turn to disk before returning; False if that fails, counted and logged, or if it is one too many."""
        if session.full or session.closed:
            return False
        try:
            self._journal.write(session, step)
        except sqlite3.Error as error:  # an agent gets its answer in spite of a full disk
            self.counters.trajectories_dropped += 1
            log.error("a turn of %s is lost, it cannot be written: %s", session.episode_id, error)
            return False
        return True

    def mark(self, session: Session) -> None:
        """Write the conversation's state to disk, for the next process if this one is killed."""
        if not self.on or session.named or session.closed:
            return
        try:
            self._journal.mark(session)
        except sqlite3.Error as error:
            log.error("what was asked of %s cannot be written: %s", session.episode_id, error)

    async def close(
        self, session: Session, status: Status, success: bool | None = None, episode_return: float = 0.0
    ) -> None:
        """End the conversation: have its turns delivered."""
        try:
            if session.recorded:
                body = await asyncio.to_thread(self._sealed, session, status, success, episode_return)
                if body is not None:
                    await self._delivery.put(outbox.Parcel(session.trajectory_id, body))
            if session.saved:
                self._journal.forget(session)
        except sqlite3.Error as error:
            log.error("the turns of %s stay in the journal: %s", session.episode_id, error)
            return
        session.recorded = 0

    def _sealed(self, session: Session, status: Status, success: bool | None, episode_return: float) -> bytes | None:
        """The trajectory, redacted, checked and encoded."""
        steps = [
            step(
                (turn["observation"], turn["action"], turn.get("log_prob"), turn.get("exploration", False), None),
                turn.get("reward", 0.0),
            )
            for turn in self._journal.steps(session)
        ]
        if not steps:
            return None
        done = status == "completed"
        last = steps[-1]
        steps[-1] = last | {"reward": last["reward"] + episode_return, "terminated": done, "truncated": not done}
        trajectory = {
            "trajectory_id": session.trajectory_id,
            "agent": self._agent,
            "task": session.task,
            "episode_id": session.episode_id,
            "model_deployment": self._model_deployment,
            "policy_revision": session.revision,
            "started_at": session.started_at,
            "ended_at": datetime.now(UTC),
            "steps": steps,
            "outcome": {
                "status": status,
                "episode_return": episode_return,
                "success": success,
                "values": dict(session.values),
            },
            "metadata": session.metadata,
        }
        return encoded(trajectory, self._redactor, self.counters)

    async def flush(self, patience: float) -> int:
        """Deliver and stop; returns how many conversations stay on disk."""
        return await self._delivery.close(patience)


async def _nowhere(parcel: outbox.Parcel) -> None:
    raise errors.SinkDown("recording is off")


SWEEP_SECONDS = 5.0


class OpenSessions:
    """Conversations by the id of their episode, the least recently used first.

    Args:
        idle_seconds: a conversation without a request for this long ends.
        most: conversations; above it the least recently used one ends.
        touched: whether a person has decided in an episode, at any gateway.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        idle_seconds: float = 900.0,
        most: int = 10_000,
        touched: Callable[[str], bool] = lambda episode_id: False,
    ) -> None:
        self.recording, self._touched = recording, touched
        self._idle, self._most = idle_seconds, most
        self.open: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self.open)

    def restore(self) -> None:
        """Continue the conversations that an earlier process did not end."""
        for session in self.recording.start():
            self.open[session.episode_id] = session

    def find(self, episode_id: str) -> Session | None:
        """The conversation, if this process has it."""
        session = self.open.get(episode_id)
        if session is not None:
            session.used = time.monotonic()
            self.open.move_to_end(episode_id)
        return session

    async def _close(self, session: Session, status: Status, success: bool | None = None, total: float = 0.0) -> None:
        session.closed = True
        if not session.evidence or self._touched(session.episode_id):
            # A fallback or a person has a part in the outcome: the arm's turns have not earned it.
            status, success = "withdrawn", None
        await self.recording.close(session, status, success, total)

    async def end(self, episode_id: str, status: Status, success: bool | None, episode_return: float) -> Session | None:
        """End a conversation as its client says; None if this process does not have it."""
        session = self.open.pop(episode_id, None)
        if session is not None:
            await self._close(session, status, success, episode_return)
        return session

    async def drop(self, session: Session) -> None:
        """End a conversation whose arm was withdrawn."""
        if self.open.get(session.episode_id) is session:
            del self.open[session.episode_id]
        await self._close(session, "withdrawn")

    async def sweep(self, every: float = SWEEP_SECONDS) -> None:
        """End idle conversations, until cancelled."""
        while True:
            await asyncio.sleep(every)
            before = time.monotonic() - self._idle
            for session in list(self.open.values()):
                if session.used >= before and len(self.open) <= self._most:
                    break
                if session.busy:
                    continue
                del self.open[session.episode_id]
                await self._close(session, "completed")

    async def leave(self) -> None:
        """Hand over all conversations: the process ends."""
        while self.open:
            _, session = self.open.popitem(last=False)
            await self._close(session, "withdrawn")


RECORDED = ("tokens", "text", "nothing")
ROWS = ("first", "history", "tools", "template", "stop", "restart", "elsewhere", "parallel", "fallback")
"""Why a row of tokens began; first: the conversation did."""
_FIRST = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class LanguageMetrics:
    """Counters of the conversations that this process answers."""

    def __init__(self, of: Families) -> None:
        self.turns = of.counters(
            names.METRIC_LANGUAGE_TURNS, "Answers of this arm, by what was recorded of them", "recorded", RECORDED
        )
        self.rows = of.counters(
            names.METRIC_LANGUAGE_ROWS,
            "Rows of tokens begun: prompts that did not continue the tokens before, by reason",
            "reason",
            ROWS,
        )
        self.tokens = of.counters(
            names.METRIC_LANGUAGE_TOKENS, "Tokens of prompts and of answers", "direction", ("input", "output")
        )
        self.fallbacks = of.counters(
            names.METRIC_LANGUAGE_FALLBACKS,
            "Requests that the fallback was asked, as no arm answered: never evidence, never recorded",
            "outcome",
            ("answered", "failed"),
        )
        self.first = of.histogram(
            names.METRIC_LANGUAGE_FIRST, "Time from a request to the first token of its answer", _FIRST
        )
        self.throttled = of.counter(names.METRIC_LANGUAGE_THROTTLED, "Requests answered with 429")
