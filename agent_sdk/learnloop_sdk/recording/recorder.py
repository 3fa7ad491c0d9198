"""Delivers parcels in the background; none is forgotten before it was acknowledged or has no room."""

import asyncio
import atexit
import logging
import weakref
from collections.abc import Awaitable, Callable

from learnloop_sdk.counters import Counters
from learnloop_sdk.errors import SinkDown, TrajectoryRejected
from learnloop_sdk.recording.spool import DiskSpool, Parcel, Spool
from learnloop_sdk.transport.event_loop import EventLoopOwner

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
