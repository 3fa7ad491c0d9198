"""Room in the streams the data plane reads: what was read makes way, what was not never does.

A full stream refuses what is new, and its publisher keeps it. So that only the unread can fill one, what was read is
taken out, the oldest first, before there is no room left; until then it stays for who wants to see it (thirty days).
"""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nats.errors import Error as NatsError
from nats.js.errors import NotFoundError

from learnloop_api import names
from learnloop_dataplane.errors import NoRoom, Unavailable
from learnloop_dataplane.metrics import Metrics
from learnloop_dataplane.nats.connection import Bus
from learnloop_dataplane.nats.streams import TRAJECTORIES

log = logging.getLogger(__name__)
ROOM_SECONDS = 1.0
FULL_SHARE, LEFT_SHARE = 0.75, 0.5  # above the one, what was read goes until the other is left
ALARM_SHARE = 0.8  # of unread messages
MIB = 2**20


@dataclass(frozen=True)
class Level:
    """How full one stream is.

    Attributes:
        limit, bytes: what it may hold, and holds.
        messages, unread: of which nobody has acknowledged so many.
        first: number of the oldest message.
        read: every message up to this number was read.
    """

    limit: int
    bytes: int
    messages: int
    unread: int
    first: int
    read: int

    @property
    def full(self) -> float:
        """The share of its room that is taken, 0 to 1."""
        return self.bytes / self.limit

    @property
    def unread_share(self) -> float:
        """The share of its room that unread messages take, were all of the same size."""
        return self.full * min(1.0, self.unread / self.messages) if self.messages else 0.0

    def dispensable(self) -> int:
        """The number below which messages may go, 0: none need to. All below it were read."""
        if self.full <= FULL_SHARE or self.read < self.first:
            return 0
        surplus = self.bytes - LEFT_SHARE * self.limit
        return min(self.read + 1, self.first + int(-(-surplus * self.messages // self.bytes)))


class Room:
    """Measures and clears; any number of processes may do so at once.

    Args:
        readers: the durable consumer of each stream.
    """

    def __init__(self, bus: Bus, metrics: Metrics, readers: Mapping[str, str]) -> None:
        self._bus = bus
        self._metrics = metrics
        self._readers = readers
        self._waiting: Counter[str] = Counter()
        self.problem: str | None = None

    async def look(self) -> None:
        """One pass over the streams.

        Raises:
            Unavailable: NATS does not answer.
        """
        await self._bus.ready.wait()
        problems = []
        try:
            for stream, durable in self._readers.items():
                level = await self._measured(stream, durable)
                if upto := level.dispensable():
                    await self._bus.js.purge_stream(stream, seq=upto)
                    level = await self._measured(stream, durable)
                    log.info("%s: made room, %.0f %% of it are taken", stream, 100 * level.full)
                self._metrics.stream(stream, level.limit, level.bytes, level.unread, level.unread_share)
                if level.unread_share >= ALARM_SHARE:
                    problems.append(_complaint(stream, level))
                if stream == TRAJECTORIES:
                    await self._count(level)
        except (NatsError, TimeoutError, OSError) as error:
            raise Unavailable("NATS") from error
        self.problem = "; ".join(problems) or None

    def admit(self, namespace: str) -> None:
        """May this namespace's episode go past the full stream, straight into PostgreSQL? Who fills the stream may not:
        its episodes would take the database's time from what it sent before, and from everybody else.

        Raises:
            NoRoom: of what waits, this namespace has its equal share or more.
        """
        mine, everybody = self._waiting[namespace], {*self._waiting, namespace}
        if mine and mine * len(everybody) >= self._waiting.total():
            self._metrics.no_room(namespace)
            raise NoRoom(
                f"{mine} messages of this namespace wait to be stored and {TRAJECTORIES} is full; nothing was taken, "
                "send the request again"
            )

    async def _measured(self, stream: str, durable: str) -> Level:
        info = await self._bus.js.stream_info(stream)
        # Asked second: a consumer that now has nothing left to read has read all that was there before.
        state = info.state
        limit, read, unread = info.config.max_bytes or 1, state.first_seq - 1, state.messages
        try:
            reader = await self._bus.js.consumer_info(stream, durable)
        except NotFoundError:  # its reader makes it anew
            pass
        else:
            unread = min(state.messages, (reader.num_pending or 0) + (reader.num_ack_pending or 0))
            # A floor follows the messages it is for; the end of a stream may be somebody else's.
            read = state.last_seq if not unread else _floor(reader)
        return Level(limit, state.bytes, state.messages, unread, state.first_seq, min(read, state.last_seq))

    async def _count(self, level: Level) -> None:
        """Whose messages wait: asked only when that matters, for it lists every agent."""
        if level.unread_share < ALARM_SHARE:
            self._waiting.clear()
            return
        subject = f"{names.SUBJECT_TRAJECTORY}.>"
        subjects = (await self._bus.js.stream_info(TRAJECTORIES, subjects_filter=subject)).state.subjects or {}
        waiting: Counter[str] = Counter()
        for name, messages in subjects.items():
            waiting[name.removeprefix(f"{names.SUBJECT_TRAJECTORY}.").partition(".")[0]] += messages
        self._waiting = waiting


def _floor(reader: Any) -> int:
    return reader.ack_floor.stream_seq if reader.ack_floor else 0


def _complaint(stream: str, level: Level) -> str:
    return (
        f"{stream}: {level.unread} unread messages take {100 * level.unread_share:.0f} % of its "
        f"{level.limit // MIB} MiB; when it is full it refuses what is new, which its senders keep. "
        "Does the reader keep up (PostgreSQL)? Else give it more room: nats.trajectories.size"
    )
