"""The two ways a trajectory reaches the data plane: JetStream with its PubAck, or HTTP."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Protocol

import httpx
import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import PubAck
from nats.js.client import JetStreamContext

from learnloop_api import names
from learnloop_sdk.errors import SinkDown, TrajectoryRejected
from learnloop_sdk.identity import Identity
from learnloop_sdk.spool import Parcel

log = logging.getLogger(__name__)
ACK_SECONDS = 3.0
CONNECT_SECONDS = 2.0
RECONNECT_PAUSE = 1.0
HEADERS_BYTES = 512
REFUSED_PAUSE = 60.0  # who may what does not change by asking again
CREDENTIALS = {"user", "token", "user_jwt_cb", "user_credentials", "nkeys_seed", "nkeys_seed_str"}


class Sink(Protocol):
    """Delivers one trajectory durably."""

    name: str

    async def send(self, parcel: Parcel) -> None:
        """Return once it is durable; raises SinkDown (try later) or TrajectoryRejected (never)."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class NatsSink:
    """JetStream. nats-py's own reconnection is off: it would buffer what the spool already keeps safe.

    Without credentials among the options the service-account token is sent, afresh at each connection.
    """

    name = "nats"

    def __init__(self, url: str, agent: str, identity: Identity, options: dict[str, Any] | None = None) -> None:
        self._url = url
        self._subject = trajectory_subject(identity.namespace, agent)
        self._identity = identity
        self._options = {"inbox_prefix": names.nats_inbox(identity.namespace), **(options or {})}
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None
        self._refused: asyncio.Future[str] | None = None
        self._not_before = 0.0

    async def send(self, parcel: Parcel) -> None:
        """Publish and wait for the PubAck. The message id names the namespace too: all tenants share one stream."""
        stream = await self._connected()
        assert self._client is not None
        if len(parcel.body) + HEADERS_BYTES > self._client.max_payload:
            raise SinkDown(f"{len(parcel.body)} bytes are more than this NATS server takes")
        try:
            acknowledged = await self._unless_refused(
                stream.publish(
                    self._subject, parcel.body, timeout=ACK_SECONDS, headers={"Nats-Msg-Id": self._message_id(parcel)}
                )
            )
        except (nats.errors.Error, OSError, TimeoutError) as error:
            if not isinstance(error, nats.js.errors.Error):
                await self.close()
            raise SinkDown(f"NATS: {str(error) or type(error).__name__}") from error
        if not acknowledged.stream:
            raise SinkDown("NATS: acknowledged by no stream")

    async def close(self) -> None:
        """See Sink.close."""
        client, self._client, self._stream = self._client, None, None
        if client is not None and not client.is_closed:
            try:
                await client.close()
            except (nats.errors.Error, OSError, TimeoutError) as error:
                log.debug("closing NATS: %s", error)

    async def _unless_refused(self, publishing: Coroutine[Any, Any, PubAck]) -> PubAck:
        """NATS says "permissions violation" beside the publication, whose acknowledgement never comes.

        Raises:
            SinkDown: refused; says what the server said.
        """
        assert self._refused is not None
        waiting: set[asyncio.Future[Any]] = {task := asyncio.ensure_future(publishing), self._refused}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        await self.close()
        self._not_before = time.monotonic() + REFUSED_PAUSE
        raise SinkDown(
            f"{self._refused.result()}: a token may publish its own namespace's subjects only; give the agent a "
            f"service account of namespace {self._identity.namespace}, or nats_options with credentials that may"
        )

    def _message_id(self, parcel: Parcel) -> str:
        namespace = self._subject.removeprefix(f"{names.SUBJECT_TRAJECTORY}.").partition(".")[0]
        return f"{namespace}/{parcel.trajectory_id}"

    async def _connected(self) -> JetStreamContext:
        if self._client is not None and self._stream is not None and self._client.is_connected:
            return self._stream
        if time.monotonic() < self._not_before:
            raise SinkDown("NATS: not connected")
        self._not_before = time.monotonic() + RECONNECT_PAUSE
        await self.close()
        self._refused = refused = asyncio.get_running_loop().create_future()
        options = self._options
        if (token := self._identity.token()) and not options.keys() & CREDENTIALS:
            options = {**options, "token": token}

        async def told(error: Exception) -> None:
            log.debug("NATS: %s", error)
            if "permissions violation for publish" in str(error).lower() and not refused.done():
                refused.set_result(f"NATS: {str(error).removeprefix('nats: ')}")

        try:
            self._client = await nats.connect(
                self._url,
                allow_reconnect=False,
                connect_timeout=int(CONNECT_SECONDS),
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                error_cb=told,
                name="learnloop-sdk",
                **options,
            )
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise SinkDown(f"NATS: {str(error) or type(error).__name__}") from error
        self._not_before = 0.0
        self._stream = self._client.jetstream()
        return self._stream


class HttpSink:
    """POST /api/v1/trajectories, which answers after JetStream's PubAck."""

    name = "http"

    def __init__(self, client: httpx.AsyncClient, identity: Identity) -> None:
        self._client = client
        self._identity = identity

    async def send(self, parcel: Parcel) -> None:
        """See Sink.send."""
        headers = self._identity.headers() | {"content-type": "application/json"}
        try:
            response = await self._client.post("/api/v1/trajectories", content=parcel.body, headers=headers)
        except (httpx.HTTPError, OSError) as error:
            raise SinkDown(f"data plane: {str(error) or type(error).__name__}") from error
        if response.status_code in (400, 409, 413, 422):
            raise TrajectoryRejected(f"HTTP {response.status_code}: {response.text[:300]}")
        if response.status_code >= 300:
            raise SinkDown(f"data plane: HTTP {response.status_code}")

    async def close(self) -> None:
        """The client belongs to the Learnloop."""


def trajectory_subject(namespace: str, agent: str) -> str:
    """Where an agent's trajectories are published."""
    return f"{names.SUBJECT_TRAJECTORY}.{namespace}.{agent}"
