"""The JetStream streams: their definitions, and how much of them each namespace may fill."""

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, StorageType, StoreCompression, StreamConfig
from nats.js.errors import BadRequestError, NotFoundError

from learnloop_api import names
from learnloop_dataplane.errors import NoRoom, Unavailable
from learnloop_dataplane.metrics import Metrics

if TYPE_CHECKING:
    from learnloop_dataplane.nats.connection import Bus

TRAJECTORIES = "RL_TRAJECTORIES"
REWARDS = "RL_REWARDS"
TRAINING = "RL_TRAINING"
STREAMS = (TRAJECTORIES, REWARDS, TRAINING)
DAY = 86_400.0
DEDUPLICATE_SECONDS = 7200.0
MAX_MESSAGE = 8 * 2**20


def _subjects(*prefixes: str) -> list[str]:
    # The bare subject of the specification is bound as well: what is published there is refused with a reason.
    return [subject for prefix in prefixes for subject in (prefix, f"{prefix}.>")]


def stream_configs(max_bytes: int, replicas: int = 1) -> list[StreamConfig]:
    """Definitions of the streams.

    Args:
        max_bytes: size of RL_TRAJECTORIES; the others get an eighth, at least 16 MiB. In streams that
            others read, the oldest make room. Streams that the data plane reads refuse new messages when they are full,
            and `Room` removes read ones: an unread message is never discarded.
        replicas: servers that keep each stream.
    """
    small = max(max_bytes // 8, 16 * 2**20)
    common: dict[str, Any] = {
        "storage": StorageType.FILE,
        "num_replicas": replicas,
        "duplicate_window": DEDUPLICATE_SECONDS,
        "compression": StoreCompression.S2,
        "allow_direct": True,
        "max_msg_size": MAX_MESSAGE,
    }
    training = _subjects(names.SUBJECT_TRAINING_REQUEST, names.SUBJECT_TRAINING_STATUS, names.SUBJECT_MODEL_DEPLOYED)
    return [
        StreamConfig(
            name=TRAJECTORIES,
            subjects=_subjects(names.SUBJECT_TRAJECTORY),
            max_age=30 * DAY,
            max_bytes=max_bytes,
            discard=DiscardPolicy.NEW,
            **common,
        ),
        StreamConfig(
            name=REWARDS,
            subjects=_subjects(names.SUBJECT_REWARD),
            max_age=30 * DAY,
            max_bytes=small,
            discard=DiscardPolicy.OLD,
            **common,
        ),
        StreamConfig(
            name=TRAINING,
            subjects=training,
            max_age=7 * DAY,
            max_bytes=small,
            discard=DiscardPolicy.NEW,
            **common,
        ),
    ]


async def ensure_streams(js: JetStreamContext, max_bytes: int, replicas: int = 1) -> None:
    """Creates what is missing and updates what differs.

    Raises:
        nats.errors.Error: the server does not answer, or refuses (e.g. not enough storage).
    """
    for config in stream_configs(max_bytes, replicas):
        try:
            await js.add_stream(config)
        except BadRequestError as error:
            if error.err_code != 10058:  # "stream name already in use with a different configuration"
                raise
            await js.update_stream(config)


log = logging.getLogger(__name__)
ROOM_SECONDS = 1.0
FULL_SHARE = 0.75  # above, read messages go
ALARM_SHARE = 0.8  # of unread messages
MIB = 2**20


@dataclass(frozen=True)
class Level:
    """How full one stream is.

    Attributes:
        limit, bytes: what it may hold, and holds.
        messages, unread: how many it holds, and how many of them are not acknowledged.
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

    @property
    def purgeable(self) -> int:
        """The number below which all messages were read and may go; 0: none need to."""
        return self.read + 1 if self.full > FULL_SHARE and self.read >= self.first else 0


class Room:
    """Measures and clears; any number of processes may do so.

    Args:
        readers: the durable consumer of each stream.
    """

    def __init__(self, bus: "Bus", metrics: Metrics, readers: Mapping[str, str]) -> None:
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
                if upto := level.purgeable:
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
        own, everybody = self._waiting[namespace], {*self._waiting, namespace}
        if own and own * len(everybody) >= self._waiting.total():
            self._metrics.no_room(namespace)
            raise NoRoom(
                f"{own} messages of this namespace wait to be stored and {TRAJECTORIES} is full; nothing was taken, "
                "send the request again"
            )

    async def _measured(self, stream: str, durable: str) -> Level:
        info = await self._bus.js.stream_info(stream)
        # Asked second: a consumer that now has nothing left to read has read all that was there before.
        state = info.state
        limit, read, unread = info.config.max_bytes or 1, state.first_seq - 1, state.messages
        try:
            reader = await self._bus.js.consumer_info(stream, durable)
        except NotFoundError:  # its reader will create it
            pass
        else:
            unread = min(state.messages, (reader.num_pending or 0) + (reader.num_ack_pending or 0))
            # A floor follows the messages it is for; the end of a stream may be somebody else's.
            read = state.last_seq if not unread else _floor(reader)
        return Level(limit, state.bytes, state.messages, unread, state.first_seq, min(read, state.last_seq))

    async def _count(self, level: Level) -> None:
        """Counts waiting messages by namespace; only when the stream is nearly full, as it lists every agent."""
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
