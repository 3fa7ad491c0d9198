"""POSTs that never hold an agent up and are not lost: one bounded try, and an outbox for what can wait."""

import asyncio
import json
import logging
import uuid
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from learnloop_sdk.counters import Counters
from learnloop_sdk.errors import SinkDown, TrajectoryRejected
from learnloop_sdk.recording.recorder import Recorder
from learnloop_sdk.recording.spool import DiskSpool, MemorySpool, Parcel, Spool
from learnloop_sdk.recording.spool_keys import SpoolKeys
from learnloop_sdk.recording.trajectory_sinks import Outcome
from learnloop_sdk.transport.circuit_breaker import Breaker
from learnloop_sdk.transport.identity import Identity

log = logging.getLogger(__name__)
TIMEOUT = 2.0  # of a whole request, however the server dawdles
OUTBOX_BYTES = 64 * 1024 * 1024


class Refused(Exception):
    """The service answered and did not take it (4xx): again would be refused again."""


class Away(Exception):
    """No usable answer: unreachable, too slow, overloaded, broken."""


class Courier:
    """One service, its breaker, and what it has not taken yet. No method raises because of the service.

    Args:
        client: None: there is no such service; nothing is kept for it.
        outbox: a directory; what waits there outlives the process. None: it waits in memory.
        keys: seal what waits there.
    """

    def __init__(
        self,
        client: httpx.AsyncClient | None,
        identity: Identity,
        counters: Counters,
        outbox: Path | None = None,
        keys: SpoolKeys | None = None,
    ) -> None:
        self._client = client
        self._identity = identity
        self._counters = counters
        self._breaker = Breaker()
        self._spool: Spool = DiskSpool(outbox, OUTBOX_BYTES, keys) if outbox else MemorySpool(OUTBOX_BYTES)
        self._outbox = Recorder(self._spool, [_OutboxSink(self)], Counters())

    @property
    def waiting(self) -> int:
        """Posts in the outbox."""
        return self._outbox.pending

    async def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to one try; None when there is none to be had now."""
        try:
            return await self.send(path, self._encoded(body))
        except (Away, Refused):
            return None

    async def hand_over(self, path: str, body: dict[str, Any], about: str | None = None) -> bool:
        """True: the service took it. False: it waits in the outbox, or was refused.

        Args:
            body: one that may come twice.
            about: takes the place of what waits about the same; left out: it stands for itself.
        """
        identity = uuid.uuid4().hex if about is None else sha256(about.encode("utf-8", "replace")).hexdigest()
        try:
            encoded = self._encoded(body)
            await self.send(path, encoded)
            self._spool.done(identity)
        except Refused:
            return False
        except Away:
            if self._client is not None:
                self._counters.posts_kept += 1
                await self._outbox.put(identity, path.encode() + b"\n" + encoded)
            return False
        return True

    async def send(self, path: str, body: bytes) -> dict[str, Any]:
        """One try, at most `TIMEOUT` seconds long; none while the breaker is open.

        Raises:
            Away: nobody took it.
            Refused: somebody looked at it and did not.
        """
        if self._client is None:
            raise Away("there is no address of this service")
        if not self._breaker.allows():
            raise Away("it did not answer lately")
        try:
            headers = self._identity.headers() | {"content-type": "application/json"}
            async with asyncio.timeout(TIMEOUT):
                response = await self._client.post(path, content=body, headers=headers)
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            self._breaker.failed()
            raise self._noted(Away(str(error) or type(error).__name__)) from error
        except BaseException:
            self._breaker.gave_up()
            raise
        if response.status_code >= 500:
            self._breaker.failed()
        else:
            self._breaker.worked()
        return self._read(response)

    def start(self) -> None:
        """Begin to send what an earlier process left on disk."""
        if self.waiting:
            self._outbox.start()

    async def close(self, patience: float) -> int:
        """Wait for the outbox at most so many seconds; returns how many posts stay behind."""
        return await self._outbox.close(patience)

    def _encoded(self, body: dict[str, Any]) -> bytes:
        try:
            return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise self._noted(Refused(f"not JSON: {error}")) from error

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        said = f"HTTP {response.status_code}: {response.text[:200]}"
        if response.status_code in (408, 429) or response.status_code >= 500:
            raise self._noted(Away(said))
        if response.status_code >= 300:
            raise self._noted(Refused(said))
        try:
            answer = response.json()
        except ValueError as error:
            raise self._noted(Away(f"the answer is not JSON: {said}")) from error
        if not isinstance(answer, dict):
            raise self._noted(Away(f"the answer is not a JSON object: {said}"))
        return answer

    def _noted(self, error: "Away | Refused") -> "Away | Refused":
        self._counters.memory_failures += 1
        log.warning("%s: %s; going on without it", self._client.base_url if self._client else "-", error)
        return error


class _OutboxSink:
    """Sends what is in the outbox."""

    name = "outbox"

    def __init__(self, courier: Courier) -> None:
        self._courier = courier

    async def send(self, parcels: Sequence[Parcel]) -> list[Outcome]:
        """See sinks.Sink. One after the other: a service that is back is not run over."""
        return [await self._sent(parcel) for parcel in parcels]

    async def close(self) -> None:
        """See sinks.Sink: the client belongs to the Learnloop."""

    async def _sent(self, parcel: Parcel) -> Outcome:
        path, _, body = parcel.body.partition(b"\n")
        try:
            await self._courier.send(path.decode(), body)
        except Away as error:
            return SinkDown(str(error))
        except Refused as error:
            return TrajectoryRejected(f"{path.decode()}: {error}")
        return None
