"""The two ways a trajectory reaches the data plane: JetStream with its PubAck, or HTTP."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Protocol

import httpx
import nats
import nats.errors
from nats.aio.client import Client

from learnloop_api import names
from learnloop_api.tls.contexts import client_context
from learnloop_sdk.errors import SinkDown, TrajectoryRejected
from learnloop_sdk.recording.jetstream_acks import Acknowledgements, Silence
from learnloop_sdk.recording.spool import Parcel
from learnloop_sdk.transport.identity import Identity

log = logging.getLogger(__name__)
ACK_SECONDS = 3.0
CONNECT_SECONDS = 2.0
RECONNECT_PAUSE = 1.0
HEADERS_BYTES = 512
REFUSED_PAUSE = 60.0  # who may what does not change by asking again
CREDENTIALS = {"user", "token", "user_jwt_cb", "user_credentials", "nkeys_seed", "nkeys_seed_str"}


# None: it is durable. SinkDown: try later. TrajectoryRejected: never.
Outcome = SinkDown | TrajectoryRejected | None


class Sink(Protocol):
    """Delivers trajectories durably."""

    name: str

    async def send(self, parcels: Sequence[Parcel]) -> list[Outcome]:
        """One outcome for each of them; never raises for the place's sake."""
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
        self._options = {"tls": client_context(), **(options or {})}
        self._client: Client | None = None
        self._stream: Acknowledgements | None = None
        self._ended: asyncio.Future[str] | None = None
        self._not_before = 0.0

    async def send(self, parcels: Sequence[Parcel]) -> list[Outcome]:
        """Publish all, wait for the PubAcks. Message ids name the namespace too: all tenants share one stream."""
        try:
            stream = await self._connected()
            assert self._client is not None
            room = self._client.max_payload - HEADERS_BYTES
            fitting = [parcel for parcel in parcels if len(parcel.body) <= room]
            answers = iter(await self._publish(stream, fitting))
        except SinkDown as error:
            return [error] * len(parcels)
        return [next(answers) if len(parcel.body) <= room else _too_large(parcel) for parcel in parcels]

    async def close(self) -> None:
        """See Sink.close."""
        client, self._client, self._stream = self._client, None, None
        if client is not None and not client.is_closed:
            try:
                await client.close()
            except (nats.errors.Error, OSError, TimeoutError) as error:
                log.debug("closing NATS: %s", error)

    async def _publish(self, stream: Acknowledgements, parcels: Sequence[Parcel]) -> list[SinkDown | None]:
        """What came of each.

        Raises:
            SinkDown: nothing is known of any. NATS says "permissions violation" beside the publication, whose
                acknowledgement never comes; then it says what the server said.
        """
        assert self._ended is not None
        ended = self._ended
        messages = [(parcel.body, {"Nats-Msg-Id": self._message_id(parcel)}) for parcel in parcels]
        try:
            answers = await stream.publish(self._subject, messages, ACK_SECONDS, ended)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            await self.close()
            raise SinkDown(f"NATS: {str(error) or type(error).__name__}") from error
        if not any(isinstance(answer, Silence) for answer in answers):
            return answers
        refusal = ended.result() if ended.done() else ""
        await self.close()
        if not refusal:
            return answers
        self._not_before = time.monotonic() + REFUSED_PAUSE
        raise SinkDown(f"{refusal}: {self._remedy(refusal)}, or nats_options with credentials that may")

    def _remedy(self, refusal: str) -> str:
        if "violation for subscription" in refusal.lower():
            return (
                "a token may be answered on its own ServiceAccount's inbox only; leave inbox_prefix out of "
                "nats_options, use the data plane's version of this package"
            )
        return (
            "a token may publish its own namespace's subjects only; give the agent a "
            f"service account of namespace {self._identity.namespace}"
        )

    def _credentials(self) -> dict[str, Any]:
        """Options of the next connection: the token as it is now, and the inbox of the account it is for."""
        if not (token := self._identity.token()) or self._options.keys() & CREDENTIALS:
            return {"inbox_prefix": names.nats_inbox(self._identity.namespace), **self._options}
        inbox = names.nats_inbox(*(self._identity.account() or (self._identity.namespace,)))
        return {"inbox_prefix": inbox, "token": token, **self._options}

    def _message_id(self, parcel: Parcel) -> str:
        namespace = self._subject.removeprefix(f"{names.SUBJECT_TRAJECTORY}.").partition(".")[0]
        return f"{namespace}/{parcel.trajectory_id}"

    async def _connected(self) -> Acknowledgements:
        if self._client is not None and self._stream is not None and self._client.is_connected:
            return self._stream
        if time.monotonic() < self._not_before:
            raise SinkDown("NATS: not connected")
        self._not_before = time.monotonic() + RECONNECT_PAUSE
        await self.close()
        self._ended = ended = asyncio.get_running_loop().create_future()
        options = self._credentials()

        async def told(error: Exception) -> None:
            log.debug("NATS: %s", error)
            if "permissions violation" in str(error).lower() and not ended.done():
                ended.set_result(f"NATS: {str(error).removeprefix('nats: ')}")

        async def closed() -> None:
            if not ended.done():
                ended.set_result("")

        try:
            self._client = await nats.connect(
                self._url.split(","),
                allow_reconnect=False,
                connect_timeout=int(CONNECT_SECONDS),
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                error_cb=told,
                closed_cb=closed,
                name="learnloop-sdk",
                **options,
            )
            self._stream = await Acknowledgements(self._client).listen()
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise SinkDown(f"NATS: {str(error) or type(error).__name__}") from error
        self._not_before = 0.0
        return self._stream


class HttpSink:
    """POST /api/v1/trajectories, which answers after JetStream's PubAck."""

    name = "http"

    def __init__(self, client: httpx.AsyncClient, identity: Identity) -> None:
        self._client = client
        self._identity = identity

    async def send(self, parcels: Sequence[Parcel]) -> list[Outcome]:
        """See Sink.send."""
        headers = self._identity.headers() | {"content-type": "application/json"}
        return list(await asyncio.gather(*(self._post(parcel, headers) for parcel in parcels)))

    async def _post(self, parcel: Parcel, headers: dict[str, str]) -> Outcome:
        try:
            response = await self._client.post("/api/v1/trajectories", content=parcel.body, headers=headers)
        except (httpx.HTTPError, OSError) as error:
            return SinkDown(f"data plane: {str(error) or type(error).__name__}")
        if response.status_code in (400, 409, 413, 422):
            return TrajectoryRejected(f"HTTP {response.status_code}: {response.text[:300]}")
        if response.status_code >= 300:
            return SinkDown(f"data plane: HTTP {response.status_code}: {response.text[:300]}")
        return None

    async def close(self) -> None:
        """The client belongs to the Learnloop."""


def trajectory_subject(namespace: str, agent: str) -> str:
    """Where an agent's trajectories are published."""
    return f"{names.SUBJECT_TRAJECTORY}.{namespace}.{agent}"


def _too_large(parcel: Parcel) -> SinkDown:
    return SinkDown(f"{len(parcel.body)} bytes are more than this NATS server takes")
