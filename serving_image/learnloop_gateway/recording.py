"""Open conversations of this process, and the recorder that delivers each as one trajectory."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from learnloop_gateway.session import Journal, Session
from learnloop_sdk.errors import Counters, SinkDown
from learnloop_sdk.outbox import Recorder, Send
from learnloop_sdk.spool import Parcel, Spool, SpoolKeys
from learnloop_sdk.trajectory import Redactor, default_redactor, encoded, step

log = logging.getLogger(__name__)
LONGEST_KNOWN = 16_384
Status = Literal["completed", "error", "withdrawn"]


class Recording:
    """The journal of turns, and the recorder that delivers conversations.

    Args:
        folder: for conversations under way and for what is not acknowledged yet; one process to a folder.
        agent: whose experience it is; "": nobody's, and nothing is recorded.
        send: delivers a trajectory; None: nothing is recorded.
    """

    def __init__(
        self,
        folder: Path,
        agent: str,
        model_deployment: str,
        send: Send | None,
        redactor: Redactor | None = None,
    ) -> None:
        self._agent, self._model_deployment = agent, model_deployment
        self._redactor = redactor or default_redactor()
        # The same system prompt comes with every conversation.
        self._known = lru_cache(maxsize=512)(lambda text: self._redactor(text) == text)
        self.counters = Counters()
        self.on = bool(agent) and send is not None
        keys = SpoolKeys.read()
        self._journal = Journal(folder / "turns", keys)
        self._recorder = Recorder(Spool(folder / "spool", keys=keys), send or _nowhere, self.counters)

    @property
    def pending(self) -> int:
        """Conversations that wait to be delivered."""
        return self._recorder.pending

    def start(self) -> list[Session]:
        """Begin to deliver; returns the conversations that an earlier process left under way."""
        if not self.on:
            return []
        if self._recorder.pending:
            self._recorder.start()
        return self._journal.left()

    def is_clean(self, text: str) -> bool:
        """Nothing in the text would be redacted: its tokens, which say the same, may be kept."""
        return self._known(text) if len(text) <= LONGEST_KNOWN else self._redactor(text) == text

    def turn(self, session: Session, step: dict[str, Any]) -> bool:
        """Keep a turn; False, counted and said, where that is not possible. It is durable on return."""
        try:
            self._journal.write(session, step)
        except OSError as error:  # a full disk is no reason for an agent to get no answer
            self.counters.trajectories_dropped += 1
            log.error("a turn of %s is lost, it cannot be written: %s", session.episode_id, error)
            return False
        return True

    def mark(self, session: Session) -> None:
        """Keep what has changed of the conversation, for the next process if this one is killed."""
        if not self.on or session.pinned or session.closed:
            return
        try:
            self._journal.mark(session)
        except OSError as error:
            log.error("what was asked of %s cannot be written: %s", session.episode_id, error)

    async def close(
        self, session: Session, status: Status, success: bool | None = None, episode_return: float = 0.0
    ) -> None:
        """The conversation is over: hand its turns to the recorder."""
        if not session.recorded:
            if session.kept:
                self._journal.forget(session)
            return
        try:
            body = await asyncio.to_thread(self._sealed, session, status, success, episode_return)
            if body is not None:
                await self._recorder.put(session.trajectory_id, body)
        except OSError as error:
            log.error("the turns of %s stay in the journal: %s", session.episode_id, error)
            return
        self._journal.forget(session)
        session.recorded = 0

    def _sealed(self, session: Session, status: Status, success: bool | None, episode_return: float) -> bytes | None:
        """The trajectory, redacted, checked and encoded."""
        steps = [
            step(
                (turn["observation"], turn["action"], turn.get("log_prob"), turn.get("exploration", False)),
                turn.get("reward", 0.0),
            )
            for turn in self._journal.steps(session)
        ]
        if not steps:
            return None
        done = status == "completed"
        last = steps[-1]
        steps[-1] = last | {"reward": last["reward"] + episode_return, "terminated": done, "truncated": not done}
        more = {"continues": session.continues} if session.continues else {}
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
            "metadata": session.metadata | more,
        }
        return encoded(trajectory, self._redactor, self.counters)

    async def flush(self, patience: float) -> int:
        """Deliver, stop and let go; returns how many conversations stay on disk."""
        return await self._recorder.close(patience)


async def _nowhere(parcel: Parcel) -> None:
    raise SinkDown("recording is off")


SWEEP_SECONDS = 5.0


class OpenSessions:
    """By the id of their episode, the least used first.

    Args:
        idle_seconds: after so long without a request a conversation is over.
        most: conversations; above it the least used one is over.
        largest: bytes of turns after which a conversation goes on in a trajectory of its own.
        touched: whether a person has decided in it, wherever that was.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        idle_seconds: float = 900.0,
        most: int = 10_000,
        largest: int = 4 * 2**20,
        touched: Callable[[str], bool] = lambda episode_id: False,
    ) -> None:
        self._recording, self._touched = recording, touched
        self._idle, self._most, self._largest = idle_seconds, most, largest
        self._open: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def restore(self) -> None:
        """Take up what an earlier process left."""
        for session in self._recording.start():
            self._open[session.episode_id] = session

    def find(self, episode_id: str) -> Session | None:
        """The conversation, if this process knows it."""
        session = self._open.get(episode_id)
        if session is not None:
            session.used = time.monotonic()
            self._open.move_to_end(episode_id)
        return session

    def add(self, session: Session) -> Session:
        """A conversation that begins, or begins here."""
        self._open[session.episode_id] = session
        return session

    async def part(self, session: Session) -> None:
        """Put a conversation that has become too large into its trajectory; it goes on in another one."""
        if session.busy > 1 or (session.size < self._largest and not session.full):
            return
        following = self._following(session)
        if session.row is not None and not session.full:
            following.row, following.rows = session.row, 1
            session.row.number = 0
        following.busy, session.busy = session.busy, 0
        await self._close(session, "withdrawn")  # it has not ended, and its return comes with the last part

    def going_on(self, session: Session) -> Session:
        """The same conversation, in another trajectory where this one was handed over in the meantime."""
        return self._following(session) if session.closed else session

    def mark(self, session: Session) -> None:
        """Keep what was asked of the conversation, wherever it goes on by now."""
        self._recording.mark(self._open.get(session.episode_id, session))

    def _following(self, session: Session) -> Session:
        following = session.following_part()
        self._open[session.episode_id] = following
        return following

    async def _close(self, session: Session, status: Status, success: bool | None = None, total: float = 0.0) -> None:
        session.closed = True
        if not session.evidence or self._touched(session.episode_id):
            # What a fallback or a person made of it, the arm's turns have not earned.
            status, success = "withdrawn", None
        await self._recording.close(session, status, success, total)

    async def end(self, episode_id: str, status: Status, success: bool | None, episode_return: float) -> Session | None:
        """The client says how the conversation ended; None where this process does not know it."""
        session = self._open.pop(episode_id, None)
        if session is not None:
            await self._close(session, status, success, episode_return)
        return session

    async def drop(self, session: Session) -> None:
        """Its arm was taken away."""
        if self._open.get(session.episode_id) is session:
            del self._open[session.episode_id]
        await self._close(session, "withdrawn")

    async def sweep(self, every: float = SWEEP_SECONDS) -> None:
        """End conversations that nobody goes on with, until cancelled."""
        while True:
            await asyncio.sleep(every)
            before = time.monotonic() - self._idle
            for session in list(self._open.values()):
                over = session.used < before or len(self._open) > self._most
                if not over:
                    break
                if session.busy:
                    continue
                del self._open[session.episode_id]
                await self._close(session, "completed")

    async def leave(self) -> None:
        """The process ends: what is under way goes on elsewhere, in trajectories of its own."""
        while self._open:
            _, session = self._open.popitem(last=False)
            await self._close(session, "withdrawn")
