"""The connection to NATS, and JetStream by it."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError
from nats.js import JetStreamContext
from nats.js.api import PubAck
from nats.js.errors import APIError, NotFoundError

from learnloop_common.tls.contexts import client_context
from learnloop_dataplane.concurrency.loop import cancel
from learnloop_dataplane.config import Config, newest_login
from learnloop_dataplane.errors import ApiError, NoRoom, Unavailable
from learnloop_dataplane.nats.streams import MAX_MESSAGE, STREAMS, ensure_streams

if TYPE_CHECKING:
    from learnloop_dataplane.nats.relay import TenantConnection

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


class Bus:
    """JetStream with the streams in place.

    Args:
        tenants: their account, where the server has one; None: the server knows by itself who may publish what.
    """

    def __init__(self, config: Config, tenants: "TenantConnection | None" = None) -> None:
        self._config = config
        self._tenants = tenants
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._starting: asyncio.Task[None] | None = None
        self._loose: set[asyncio.Task[None]] = set()
        self.ready = asyncio.Event()
        self.problem = "the first connection is being made"

    def start(self) -> None:
        """Begins connecting in the background."""
        self._starting = asyncio.create_task(self._connect_forever(), name="nats")

    async def close(self) -> None:
        """Stops; unacknowledged messages will be delivered again."""
        await cancel([self._starting, *self._loose])
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
                message = "the stream is full of what is not read yet; nothing was taken, send the request again"
                raise NoRoom(message) from error
            log.warning("NATS: publish to %s failed: %s", subject, _short(error))
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
            log.warning("NATS: %d events were not all acknowledged: %s", len(events), _short(error))
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

    async def _connect_forever(self) -> None:
        delay = 0.2
        while True:
            try:
                if self._client is None:
                    self._client = await asyncio.wait_for(connected(self._config, self._config.nats_user), 5)
                    self._js = self._client.jetstream(timeout=PUBLISH_TIMEOUT)
                await self.ensure()
                if self._tenants:
                    await asyncio.wait_for(self._tenants.serve(self._client), 10)
                self.ready.set()
                return
            except Exception as error:  # whatever it is, the next attempt may succeed and /readyz tells until then
                self.problem = _short(error)
                log.warning("NATS is not usable yet, next attempt in %.1f s: %s", delay, self.problem)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 5.0)


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]
