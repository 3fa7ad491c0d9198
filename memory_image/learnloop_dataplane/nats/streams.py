"""The JetStream streams: their definitions, and how much of them each namespace may fill."""

from collections import Counter
from typing import TYPE_CHECKING, Any

from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StoreCompression, StreamConfig
from nats.js.errors import APIError, BadRequestError

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
        max_bytes: size of RL_TRAJECTORIES; the others get an eighth, at least 16 MiB. RL_TRAJECTORIES is a work queue:
            a message that was acknowledged leaves it, and it refuses new ones when it is full. In the others the
            oldest make room.
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
            retention=RetentionPolicy.WORK_QUEUE,
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
            discard=DiscardPolicy.OLD,
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
            try:
                await js.update_stream(config)
            except APIError as refusal:
                raise NatsError(
                    f"the stream {config.name} exists and cannot be changed to what is needed ({refusal.description}); "
                    f"delete it when nothing in it is needed, and it is made again: nats stream rm {config.name}"
                ) from refusal


ROOM_SECONDS = 1.0
ALARM_SHARE = 0.8
MIB = 2**20


class Room:
    """Measures the queue of episodes; any number of processes may do so."""

    def __init__(self, bus: "Bus", metrics: Metrics) -> None:
        self._bus = bus
        self._metrics = metrics
        self._waiting: Counter[str] = Counter()
        self.problem: str | None = None

    async def look(self) -> None:
        """One pass.

        Raises:
            Unavailable: NATS does not answer.
        """
        await self._bus.ready.wait()
        try:
            info = await self._bus.js.stream_info(TRAJECTORIES)
            limit, state = info.config.max_bytes or 1, info.state
            self._metrics.stream(TRAJECTORIES, limit, state.bytes, state.messages)
            crowded = state.bytes >= ALARM_SHARE * limit
            self._waiting = await self._by_namespace() if crowded else Counter()
        except (NatsError, TimeoutError, OSError) as error:
            raise Unavailable("NATS") from error
        self.problem = _complaint(limit, state.bytes, state.messages) if crowded else None

    def admit(self, namespace: str) -> None:
        """May this namespace's episode go past the full stream, straight into PostgreSQL? Who fills the stream may not:
        its episodes would take the database's time from what it sent before, and from everybody else.

        Raises:
            NoRoom: of what waits, this namespace has its equal share or more.
        """
        own, everybody = self._waiting[namespace], {*self._waiting, namespace}
        if own and own * len(everybody) >= self._waiting.total():
            self._metrics.count("no_room", namespace)
            raise NoRoom(
                f"{own} messages of this namespace wait to be stored and {TRAJECTORIES} is full; nothing was taken, "
                "send the request again"
            )

    async def _by_namespace(self) -> Counter[str]:
        """Waiting messages by namespace; only asked when the stream is nearly full, as it lists every agent."""
        prefix = f"{names.SUBJECT_TRAJECTORY}."
        subjects = (await self._bus.js.stream_info(TRAJECTORIES, subjects_filter=f"{prefix}>")).state.subjects or {}
        waiting: Counter[str] = Counter()
        for name, messages in subjects.items():
            waiting[name.removeprefix(prefix).partition(".")[0]] += messages
        return waiting


def _complaint(limit: int, size: int, messages: int) -> str:
    return (
        f"{TRAJECTORIES}: {messages} unread messages take {100 * size / limit:.0f} % of its {limit // MIB} MiB; when "
        "it is full it refuses what is new, which its senders keep. "
        "Does the reader keep up (PostgreSQL)? Else give it more room: nats.trajectories.size"
    )
