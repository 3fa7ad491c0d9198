"""Delivery in the background: the recorder that empties a spool, and the courier whose posts never hold an agent up."""

import asyncio
import atexit
import json
import logging
import uuid
import weakref
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from learnloop_common.circuit_breaker import Breaker
from learnloop_sdk.errors import Counters, LearnloopError, SinkDown, TrajectoryRejected
from learnloop_sdk.http_client import EventLoopOwner, Identity, Posts, Response
from learnloop_sdk.spool import DiskSpool, MemorySpool, Parcel, Spool, SpoolKeys

log = logging.getLogger(__name__)
BATCH = 16
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
Outcome = SinkDown | TrajectoryRejected | None
"""None: it is durable. SinkDown: try later. TrajectoryRejected: never."""
Send = Callable[[Parcel], Awaitable[Outcome]]


class Recorder:
    """Owns the spool and one delivery task; use from one event loop at a time.

    Args:
        send: delivers one parcel.
        batch: parcels sent at the same time.
    """

    def __init__(self, spool: Spool, send: Send, counters: Counters, *, batch: int = BATCH) -> None:
        self._spool, self._send, self._counters, self._batch = spool, send, counters, batch
        self._owner = EventLoopOwner()
        self._wake, self._progress = asyncio.Event(), asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""
        atexit.register(_warn_of_loss, weakref.ref(self))

    @property
    def pending(self) -> int:
        """Parcels not yet acknowledged."""
        return len(self._spool)

    async def put(self, identity: str, body: bytes) -> None:
        """Take charge of a parcel. With a disk spool it is durable on return, or counted as dropped."""
        parcel = Parcel(identity, body)
        try:
            if isinstance(self._spool, DiskSpool):
                dropped = await asyncio.to_thread(self._spool.add, parcel)
            else:
                dropped = self._spool.add(parcel)
        except OSError as error:  # a full disk is no reason for an agent to stop
            self._counters.trajectories_dropped += 1
            log.error("%s is lost, it cannot be written to the spool: %s", identity, error)
            return
        self._counters.trajectories_recorded += 1
        if dropped:
            self._counters.trajectories_dropped += dropped
            log.error("spool is full: %d oldest dropped; %s", dropped, self._trouble or "the data plane is slow")
        self.start()

    def start(self) -> None:
        """Begin to deliver; also what an earlier process left on disk."""
        if self._owner.is_new():
            self._wake, self._progress, self._task = asyncio.Event(), asyncio.Condition(), None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._deliver_forever())
        self._wake.set()

    async def flush(self, patience: float) -> int:
        """Wait at most `patience` seconds until all is delivered; returns how many are still pending."""
        if self.pending:
            self.start()
            try:
                async with asyncio.timeout(patience), self._progress:
                    await self._progress.wait_for(lambda: not self.pending)
            except TimeoutError:
                pass
        return self.pending

    async def close(self, patience: float) -> int:
        """Flush, then stop; returns how many stay behind (on disk, if there is a disk spool)."""
        left = await self.flush(patience)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if left:
            log.warning("%d were not delivered: %s", left, self._trouble)
        return left

    async def _deliver_forever(self) -> None:
        pause = FIRST_PAUSE
        while True:
            while not self.pending:
                self._wake.clear()
                await self._wake.wait()
            try:
                progress = await self._deliver()
            except Exception:  # a task that ends would keep everything to itself
                log.exception("delivery failed")
                progress = False
            async with self._progress:
                self._progress.notify_all()
            if progress:
                pause = FIRST_PAUSE
                continue
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _deliver(self) -> bool:
        """Try a batch; says whether any parcel is off our hands."""
        batch = self._spool.head(self._batch)
        outcomes = await asyncio.gather(*map(self._send, batch))
        settled = [self._settled(parcel, outcome) for parcel, outcome in zip(batch, outcomes, strict=True)]
        return any(settled) or not self.pending

    def _settled(self, parcel: Parcel, outcome: Outcome) -> bool:
        """Is the parcel off our hands?"""
        if isinstance(outcome, SinkDown):
            self._note(str(outcome))
            self._counters.delivery_failures += 1
            self._spool.later(parcel)
            return False
        if outcome is None:
            self._counters.trajectories_delivered += 1
        else:
            self._counters.trajectories_rejected += 1
            log.error("%s was refused for good: %s", parcel.identity, outcome)
        self._spool.done(parcel)
        return True

    def _note(self, trouble: str) -> None:
        """Log a trouble when it starts or changes, not at every try."""
        if trouble != self._trouble:
            log.warning("%d wait to be delivered: %s", self.pending, trouble)
        self._trouble = trouble

    @property
    def at_risk(self) -> int:
        """Parcels that end with this process."""
        return 0 if isinstance(self._spool, DiskSpool) else self.pending


def _warn_of_loss(reference: "weakref.ref[Recorder]") -> None:
    recorder = reference()
    if recorder is not None and recorder.at_risk:
        log.error(
            "%d were not delivered and are lost: use `async with Learnloop(…)`, or give it a spool_directory",
            recorder.at_risk,
        )


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
