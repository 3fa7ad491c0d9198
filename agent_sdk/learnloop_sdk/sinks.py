"""The two ways a trajectory reaches the data plane: JetStream with its PubAck, or HTTP."""

import logging
import time
from typing import Any, Protocol

import httpx
import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
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
    """JetStream. nats-py's own reconnection is off: it would buffer what the spool already keeps safe."""

    name = "nats"

    def __init__(self, url: str, subject: str, options: dict[str, Any] | None = None) -> None:
        self._url = url
        self._subject = subject
        self._options = options or {}
        self._client: Client | None = None
        self._stream: JetStreamContext | None = None
        self._not_before = 0.0

    async def send(self, parcel: Parcel) -> None:
        """Publish and wait for the PubAck. The message id names the namespace too: all tenants share one stream."""
        stream = await self._connected()
        assert self._client is not None
        if len(parcel.body) + HEADERS_BYTES > self._client.max_payload:
            raise SinkDown(f"{len(parcel.body)} bytes are more than this NATS server takes")
        try:
            acknowledged = await stream.publish(
                self._subject, parcel.body, timeout=ACK_SECONDS, headers={"Nats-Msg-Id": self._message_id(parcel)}
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
        try:
            self._client = await nats.connect(
                self._url,
                allow_reconnect=False,
                connect_timeout=int(CONNECT_SECONDS),
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                error_cb=_quietly,
                name="learnloop-sdk",
                **self._options,
            )
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise SinkDown(f"NATS: {str(error) or type(error).__name__}") from error
        self._not_before = 0.0
        self._stream = self._client.jetstream()
        return self._stream


async def _quietly(error: Exception) -> None:
    log.debug("NATS: %s", error)


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
