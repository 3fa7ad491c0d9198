"""Delivery: a task in the background that empties a spool, and a service whose failures never stop an agent."""

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
from learnloop_sdk.errors import Counters, LearnloopError, Refused, SinkDown
from learnloop_sdk.http_client import EventLoopOwner, Http, Identity
from learnloop_sdk.spool import MEMORY_BYTES, Parcel, Spool, SpoolKeys

log = logging.getLogger(__name__)
BATCH = 16
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
TIMEOUT = 2.0  # of a whole request, however slowly the server sends
TRAJECTORIES = "/api/v1/trajectories"
TRAJECTORY_SECONDS = 10.0
Send = Callable[[Parcel], Awaitable[object]]
"""Delivers a parcel; raises SinkDown: try later; Refused: never."""


class Recorder:
    """Owns a spool and one delivery task; use from one event loop at a time.

    Args:
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

    @property
    def at_risk(self) -> int:
        """Parcels that end with this process."""
        return 0 if self._spool.directory else self.pending

    async def put(self, identity: str, body: bytes) -> None:
        """Keep a parcel and deliver it. On disk it is durable on return, or counted as dropped."""
        parcel = Parcel(identity, body)
        try:
            on_disk = self._spool.directory is not None
            dropped = await asyncio.to_thread(self._spool.add, parcel) if on_disk else self._spool.add(parcel)
        except OSError as error:  # a full disk must not stop an agent
            self._counters.trajectories_dropped += 1
            log.error("%s is lost, it cannot be written to the spool: %s", identity, error)
            return
        self._counters.trajectories_recorded += 1
        if dropped:
            self._counters.trajectories_dropped += dropped
            log.error("spool is full: %d oldest dropped; %s", dropped, self._trouble or "the data plane is slow")
        self.start()

    def start(self) -> None:
        """Begin to deliver, also what an earlier process left on disk."""
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
        """Flush, then stop; returns how many were not delivered."""
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
                progress = any(await asyncio.gather(*map(self._deliver, self._spool.head(self._batch))))
            except Exception:  # a task that ends would deliver nothing more
                log.exception("delivery failed")
                progress = False
            async with self._progress:
                self._progress.notify_all()
            if progress or not self.pending:
                pause = FIRST_PAUSE
                continue
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _deliver(self, parcel: Parcel) -> bool:
        """Try one parcel; returns whether it left the spool."""
        try:
            await self._send(parcel)
            self._counters.trajectories_delivered += 1
        except SinkDown as error:
            if str(error) != self._trouble:
                log.warning("%d wait to be delivered: %s", self.pending, error)
            self._trouble = str(error)
            self._counters.delivery_failures += 1
            self._spool.later(parcel)
            return False
        except Refused as error:
            self._counters.trajectories_rejected += 1
            log.error("%s was refused for good: %s", parcel.identity, error)
        self._spool.done(parcel)
        return True


def _warn_of_loss(reference: "weakref.ref[Recorder]") -> None:
    recorder = reference()
    if recorder is not None and recorder.at_risk:
        log.error(
            "%d were not delivered and are lost: use `async with Learnloop(…)`, or give it a spool_directory",
            recorder.at_risk,
        )


def to_data_plane(http: Http, address: str, identity: Identity) -> Send:
    """POST /api/v1/trajectories, which answers when the trajectory is durable."""

    async def send(parcel: Parcel) -> None:
        try:
            answer = await http.post(f"{address}{TRAJECTORIES}", parcel.body, identity.headers(), TRAJECTORY_SECONDS)
        except (OSError, TimeoutError, LearnloopError) as error:
            raise SinkDown(f"data plane: {str(error) or type(error).__name__}") from error
        if answer.status in (400, 409, 413, 422):
            raise Refused(answer.summary)
        if answer.status >= 300:
            raise SinkDown(f"data plane: {answer.summary}")

    return send


class Courier:
    """One service, its breaker, and the posts that it has not accepted yet. No method raises because of the service.

    Args:
        address: base URL; "": the service does not exist, and nothing is kept for it.
        outbox: a directory for waiting posts, which then outlive the process. None: they wait in memory.
        keys: seal waiting posts.
    """

    def __init__(
        self,
        http: Http,
        address: str,
        identity: Identity,
        counters: Counters,
        outbox: Path | None = None,
        keys: SpoolKeys | None = None,
    ) -> None:
        self._http, self._address = http, address.rstrip("/")
        self._identity, self._counters = identity, counters
        self._breaker = Breaker()
        self._spool = Spool(outbox, MEMORY_BYTES, keys)
        # One after the other: a service that is back is not overloaded.
        self._outbox = Recorder(self._spool, self._deliver, Counters(), batch=1)
        self._about: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def waiting(self) -> int:
        """Posts in the outbox."""
        return self._outbox.pending

    async def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to one try; None where there is none."""
        try:
            return await self.send(path, self._encoded(body))
        except (SinkDown, Refused):
            return None

    async def hand_over(self, path: str, body: dict[str, Any], about: str | None = None) -> bool:
        """Post `body`, which may arrive twice. True: accepted. False: it waits in the outbox, or was refused.

        Args:
            about: replaces the post about the same that still waits; None: there is none.
        """
        try:
            encoded = self._encoded(body)
        except Refused:
            return False
        if about is None:
            return await self._post_or_keep(uuid.uuid4().hex, path, encoded)
        identity = sha256(about.encode("utf-8", "replace")).hexdigest()
        lock = self._about.setdefault(identity, asyncio.Lock())
        async with lock:  # an earlier post must not arrive after a later one
            return await self._post_or_keep(identity, path, encoded)

    async def _post_or_keep(self, identity: str, path: str, encoded: bytes) -> bool:
        if not self._spool.has(identity):
            try:
                await self.send(path, encoded)
                return True
            except Refused:
                return False
            except SinkDown:
                if not self._address:
                    return False
        self._counters.posts_kept += 1
        await self._outbox.put(identity, path.encode() + b"\n" + encoded)
        return False

    async def send(self, path: str, body: bytes) -> dict[str, Any]:
        """Try once, for at most `TIMEOUT` seconds, unless the breaker is open. Raises SinkDown and Refused."""
        if not self._address:
            raise SinkDown("the service has no address")
        if not self._breaker.allows():
            raise SinkDown("it did not answer lately")
        try:
            answer = await self._http.post(f"{self._address}{path}", body, self._identity.headers(), TIMEOUT)
        except (OSError, TimeoutError, LearnloopError) as error:
            self._breaker.failed()
            raise self._noted(SinkDown(str(error) or type(error).__name__)) from error
        except BaseException:
            self._breaker.gave_up()
            raise
        if answer.status >= 500:
            self._breaker.failed()
        else:
            self._breaker.worked()
        if answer.status in (408, 429) or answer.status >= 500:
            raise self._noted(SinkDown(answer.summary))
        if answer.status >= 300:
            raise self._noted(Refused(answer.summary))
        try:
            value = json.loads(answer.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise self._noted(SinkDown(f"the answer is not a JSON object: {answer.summary}"))
        return value

    def start(self) -> None:
        """Begin to send what an earlier process left on disk."""
        if self.waiting:
            self._outbox.start()

    async def close(self, patience: float) -> int:
        """Wait at most `patience` seconds for the outbox; returns how many posts were not accepted."""
        return await self._outbox.close(patience)

    def _encoded(self, body: dict[str, Any]) -> bytes:
        try:
            return json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise self._noted(Refused(f"not JSON: {error}")) from error

    def _noted(self, error: SinkDown | Refused) -> SinkDown | Refused:
        self._counters.memory_failures += 1
        log.warning("%s: %s; going on without it", self._address or "-", error)
        return error

    async def _deliver(self, parcel: Parcel) -> None:
        path, _, body = parcel.body.partition(b"\n")
        await self.send(path.decode(), body)
