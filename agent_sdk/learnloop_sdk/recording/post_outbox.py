"""POSTs that never hold an agent up and are not lost: one bounded try, and an outbox for what can wait."""

import asyncio
import json
import logging
import uuid
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from learnloop_common.circuit_breaker import Breaker
from learnloop_sdk.counters import Counters
from learnloop_sdk.errors import LearnloopError, SinkDown, TrajectoryRejected
from learnloop_sdk.recording.recorder import Outcome, Recorder
from learnloop_sdk.recording.spool import DiskSpool, MemorySpool, Parcel, Spool
from learnloop_sdk.recording.spool_keys import SpoolKeys
from learnloop_sdk.transport.http_client import Posts, Response
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
        address: base URL; "": there is no such service, and nothing is kept for it.
        outbox: a directory; what waits there outlives the process. None: it waits in memory.
        keys: seal what waits there.
    """

    def __init__(
        self,
        http: Posts,
        address: str,
        identity: Identity,
        counters: Counters,
        outbox: Path | None = None,
        keys: SpoolKeys | None = None,
    ) -> None:
        self._http, self._address = http, address.rstrip("/")
        self._identity = identity
        self._counters = counters
        self._breaker = Breaker()
        self._spool: Spool = DiskSpool(outbox, OUTBOX_BYTES, keys) if outbox else MemorySpool(OUTBOX_BYTES)
        # One after the other: a service that is back is not run over.
        self._outbox = Recorder(self._spool, self._deliver, Counters(), batch=1)
        self._about: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

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
        try:
            encoded = self._encoded(body)
        except Refused:
            return False
        if about is None:
            return await self._post_or_keep(uuid.uuid4().hex, path, encoded)
        identity = sha256(about.encode("utf-8", "replace")).hexdigest()
        lock = self._about.setdefault(identity, asyncio.Lock())
        async with lock:  # an earlier one must not arrive after a later one, nor one that waits after either
            if self._spool.has(identity):
                await self._keep(identity, path, encoded)
                return False
            return await self._post_or_keep(identity, path, encoded)

    async def _post_or_keep(self, identity: str, path: str, encoded: bytes) -> bool:
        try:
            await self.send(path, encoded)
        except Refused:
            return False
        except Away:
            if self._address:
                await self._keep(identity, path, encoded)
            return False
        return True

    async def _keep(self, identity: str, path: str, encoded: bytes) -> None:
        self._counters.posts_kept += 1
        await self._outbox.put(identity, path.encode() + b"\n" + encoded)

    async def send(self, path: str, body: bytes) -> dict[str, Any]:
        """One try, at most `TIMEOUT` seconds long; none while the breaker is open.

        Raises:
            Away: nobody took it.
            Refused: somebody looked at it and did not.
        """
        if not self._address:
            raise Away("there is no address of this service")
        if not self._breaker.allows():
            raise Away("it did not answer lately")
        try:
            answer = await self._http.post(f"{self._address}{path}", body, self._identity.headers(), TIMEOUT)
        except (OSError, TimeoutError, LearnloopError) as error:
            self._breaker.failed()
            raise self._noted(Away(str(error) or type(error).__name__)) from error
        except BaseException:
            self._breaker.gave_up()
            raise
        if answer.status >= 500:
            self._breaker.failed()
        else:
            self._breaker.worked()
        return self._read(answer)

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

    def _read(self, response: Response) -> dict[str, Any]:
        summary = f"HTTP {response.status}: {response.text[:200]}"
        if response.status in (408, 429) or response.status >= 500:
            raise self._noted(Away(summary))
        if response.status >= 300:
            raise self._noted(Refused(summary))
        try:
            answer = json.loads(response.body)
        except ValueError as error:
            raise self._noted(Away(f"the answer is not JSON: {summary}")) from error
        if not isinstance(answer, dict):
            raise self._noted(Away(f"the answer is not a JSON object: {summary}"))
        return answer

    def _noted(self, error: "Away | Refused") -> "Away | Refused":
        self._counters.memory_failures += 1
        log.warning("%s: %s; going on without it", self._address or "-", error)
        return error

    async def _deliver(self, parcel: Parcel) -> Outcome:
        path, _, body = parcel.body.partition(b"\n")
        try:
            await self.send(path.decode(), body)
        except Away as error:
            return SinkDown(str(error))
        except Refused as error:
            return TrajectoryRejected(f"{path.decode()}: {error}")
        return None
