"""The connection to NATS, and JetStream by it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError, MaxPayloadError
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, PubAck, RetentionPolicy, StorageType, StoreCompression, StreamConfig
from nats.js.errors import APIError, BadRequestError, NotFoundError

from learnloop_api import names
from learnloop_common.tls import client_context
from learnloop_dataplane.concurrency.background_loop import Connecting, cancel, short
from learnloop_dataplane.config import Config, newest_login
from learnloop_dataplane.errors import ApiError, NoRoom, Unavailable
from learnloop_dataplane.metrics import Metrics

log = logging.getLogger(__name__)


async def connected(config: Config, user: str | None) -> Client:
    """A connection that reconnects without end.

    Args:
        user: one of the server's configuration; None where it asks for none.

    Raises:
        nats.errors.Error, OSError: not at this moment.
    """
    options: dict[str, Any] = {}
    if user:
        name, password = user, ""
        if passwords := config.lines("nats_password"):
            name, password = newest_login(user, passwords)
        options = {"user": name, "password": password}
    return await nats.connect(
        (config.nats_url or "").split(","),
        name="learnloop-memory",
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.25,
        connect_timeout=2,
        ping_interval=10,
        max_outstanding_pings=2,
        error_cb=_log_error,
        # Where the server asks for none it is not used.
        tls=client_context(),
        **options,
    )


async def _log_error(error: Exception) -> None:
    log.info("NATS: %s", str(error)[:300])


PUBLISH_TIMEOUT = 3.0
MAX_BEST_EFFORT = 256
FULL = "maximum bytes exceeded"  # what a stream says that discards nothing; its code has other meanings, too


class Tenants(Protocol):
    """The account in which tenants publish."""

    async def serve(self, own: Client) -> None: ...

    async def close(self) -> None: ...


class Bus(Connecting):
    """JetStream with the streams in place.

    Args:
        tenants: their account, where the server has one; None: the server knows by itself who may publish what.
    """

    def __init__(self, config: Config, tenants: Tenants | None = None) -> None:
        super().__init__("NATS")
        self._config = config
        self._tenants = tenants
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._loose: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Stops; unacknowledged messages will be delivered again."""
        await cancel([self.starting, *self._loose])
        if self._tenants:
            await self._tenants.close()
        if self._client and not self._client.is_closed:
            with suppress(Exception):
                await asyncio.wait_for(self._client.close(), 2)

    @property
    def js(self) -> JetStreamContext:
        """The JetStream context.

        Raises:
            Unavailable: the connection is down.
        """
        if self._js is None or self._client is None or not self._client.is_connected:
            raise Unavailable("NATS")
        return self._js

    def connected(self) -> bool:
        """Is there a connection at this moment?"""
        return self._client is not None and self._client.is_connected

    @property
    def max_payload(self) -> int:
        """Bytes of the largest message, headers included, that server and streams take."""
        return min(MAX_MESSAGE, self._client.max_payload if self._client else MAX_MESSAGE)

    async def publish(
        self, subject: str, payload: bytes, message_id: str, headers: Mapping[str, str] | None = None
    ) -> PubAck:
        """Publishes and waits until the stream has it.

        Raises:
            Unavailable: no acknowledgement; sending again with the same id is safe.
            NoRoom: the stream is full of unread messages.
            ApiError: 413, larger than the server takes.
        """
        js = self.js
        try:
            all_headers = {**(headers or {}), "Nats-Msg-Id": message_id}
            return await js.publish(subject, payload, timeout=PUBLISH_TIMEOUT, headers=all_headers)
        except MaxPayloadError:
            raise ApiError(
                413,
                f"the event is larger than NATS takes ({self.max_payload} bytes); raise max_payload or send less",
            ) from None
        except (NatsError, TimeoutError, OSError) as error:
            if isinstance(error, APIError) and error.description == FULL:
                message = "the stream is full of unread messages; nothing was stored, send the request again"
                raise NoRoom(message) from error
            log.warning("NATS: publish to %s failed: %s", subject, short(error))
            raise Unavailable("NATS") from error

    async def publish_all(self, events: Sequence[tuple[str, bytes, str]]) -> None:
        """Publishes many and waits once, for all of their acknowledgements: a round trip, not one for each.

        Args:
            events: subject, payload and message id of each.

        Raises:
            Unavailable: some were not acknowledged; sending all of them again with the same ids is safe.
        """
        js, waiting = self.js, []
        try:
            for subject, payload, message_id in events:
                headers = {"Nats-Msg-Id": message_id}
                waiting.append(await js.publish_async(subject, payload, PUBLISH_TIMEOUT, headers=headers))
            async with asyncio.timeout(PUBLISH_TIMEOUT):
                await asyncio.gather(*waiting)
        except (NatsError, TimeoutError, OSError) as error:
            log.warning("NATS: %d events were not all acknowledged: %s", len(events), short(error))
            raise Unavailable("NATS") from error
        finally:
            for one in waiting:  # a future without a waiter must not stay among nats-py's unanswered ones
                if not one.done():
                    one.cancel()
                elif not one.cancelled():
                    one.exception()

    def publish_best_effort(self, subject: str, payload: bytes) -> None:
        """Publishes without waiting; drops when too much is already under way."""
        if len(self._loose) >= MAX_BEST_EFFORT:
            return
        task = asyncio.create_task(self._try_publish(subject, payload))
        self._loose.add(task)
        task.add_done_callback(self._loose.discard)

    async def ping(self) -> None:
        """Raises Unavailable unless JetStream answers within 2 s and has every stream."""
        if not self.ready.is_set():
            raise Unavailable("NATS")
        try:
            async with asyncio.timeout(2):
                await asyncio.gather(*(self._there(stream) for stream in STREAMS))
        except (NatsError, TimeoutError, OSError) as error:
            raise Unavailable("NATS") from error

    async def _there(self, stream: str) -> None:
        try:
            await self.js.stream_info(stream)
        except NotFoundError as error:
            raise Unavailable(f"the NATS stream {stream}") from error

    async def look(self) -> None:
        """Puts back what somebody deleted, also where no reader would miss it.

        Raises:
            Unavailable: NATS does not answer, or has no room; asked again it may.
        """
        await self.ready.wait()
        try:
            await self.ensure()
        except (NatsError, TimeoutError, OSError) as error:
            raise Unavailable("NATS") from error

    async def ensure(self) -> None:
        """Puts the streams in place again, e.g. after a NATS server came back with an empty disk."""
        await ensure_streams(self.js, self._config.stream_max_bytes, self._config.stream_replicas)

    async def _try_publish(self, subject: str, payload: bytes) -> None:
        with suppress(Unavailable, NatsError, TimeoutError, OSError):
            await self.js.publish(subject, payload, timeout=PUBLISH_TIMEOUT)

    async def connect(self) -> None:
        if self._client is None:
            self._client = await asyncio.wait_for(connected(self._config, self._config.nats_user), 5)
            self._js = self._client.jetstream(timeout=PUBLISH_TIMEOUT)
        await self.ensure()
        if self._tenants:
            await asyncio.wait_for(self._tenants.serve(self._client), 10)


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

    def __init__(self, bus: Bus, metrics: Metrics) -> None:
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
