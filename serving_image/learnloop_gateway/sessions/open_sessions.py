"""All conversations under way in this process."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable

from learnloop_gateway.sessions.recording import Recording, Status
from learnloop_gateway.sessions.session import Session

log = logging.getLogger(__name__)
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
