"""Delivers trajectories in the background; none is forgotten before it was acknowledged or has no room."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from learnloop_sdk.counters import Counters
from learnloop_sdk.errors import SinkDown
from learnloop_sdk.recording.spool import DiskSpool, Parcel, Spool
from learnloop_sdk.recording.trajectory_drafts import Draft
from learnloop_sdk.recording.trajectory_sinks import Outcome, Sink

log = logging.getLogger(__name__)
BATCH = 64
# Published one by one a trajectory costs the agent's process 170 µs of processor time, in batches 55 µs. What waits is
# in the spool already, and no agent waits for it.
LINGER_SECONDS = 0.2
# Drafts that are encoded together, or 16,384 numbers and characters: no more than a millisecond or two of the agent's.
DRAFTS_SIZE = 16_384
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0


class Recorder:
    """Owns the spool and one delivery task; use from one event loop."""

    def __init__(self, spool: Spool, sinks: Sequence[Sink], counters: Counters) -> None:
        self._spool = spool
        self._sinks = sinks
        self._counters = counters
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._progress = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""
        self._drafts: list[Draft] = []
        self._drafts_size = 0
        self._flushes = 0

    @property
    def pending(self) -> int:
        """Trajectories not yet acknowledged."""
        return len(self._spool) + len(self._drafts)

    async def take(self, draft: Draft) -> None:
        """Take charge of an episode. With a disk spool it is durable on return, or counted as dropped; with one in
        memory it may be encoded later, with others."""
        if isinstance(self._spool, DiskSpool) or not draft.can_wait:
            if parcel := draft.sealed(self._counters):
                await self.put(parcel.trajectory_id, parcel.body)
            return
        self._drafts.append(draft)
        self._drafts_size += draft.size
        if len(self._drafts) >= BATCH or self._drafts_size >= DRAFTS_SIZE:
            self._seal()
        self._awake()

    async def put(self, trajectory_id: str, body: bytes) -> None:
        """Take charge of an encoded trajectory. With a disk spool it is durable on return, or counted as dropped."""
        parcel = Parcel(trajectory_id, body)
        try:
            if isinstance(self._spool, DiskSpool):
                dropped = await asyncio.to_thread(self._spool.add, parcel)
            else:
                dropped = self._spool.add(parcel)
        except OSError as error:  # a full disk is no reason for an agent to stop
            self._counters.trajectories_dropped += 1
            log.error("%s is lost, it cannot be written to the spool: %s", trajectory_id, error)
            return
        self._added(dropped)
        self._awake()

    def _seal(self) -> None:
        """Encode what waits for it; without an await, as nobody else is to see half of it."""
        drafts, self._drafts, self._drafts_size = self._drafts, [], 0
        for draft in drafts:
            if parcel := draft.sealed(self._counters):
                self._added(self._spool.add(parcel))

    def _added(self, dropped: int) -> None:
        self._counters.trajectories_recorded += 1
        if dropped:
            self._counters.trajectories_dropped += dropped
            log.error("spool is full: %d oldest trajectories dropped; %s", dropped, self._trouble or "sinks are slow")

    def _awake(self) -> None:
        self.start()
        self._wake.set()
        if self.pending >= BATCH:
            self._hurry.set()

    def start(self) -> None:
        """Begin to deliver; also what an earlier process left on disk."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._deliver_forever())
            self._wake.set()

    async def flush(self, patience: float) -> int:
        """Wait at most `patience` seconds until all is delivered; returns how many are still pending."""
        if self.pending:
            self.start()
            self._hurry.set()
            self._flushes += 1
            try:
                async with asyncio.timeout(patience), self._progress:
                    await self._progress.wait_for(lambda: not self.pending)
            except TimeoutError:
                pass
            finally:
                self._flushes -= 1
        return self.pending

    async def close(self, patience: float) -> int:
        """Flush, then stop; returns how many stay behind (on disk, if there is a disk spool)."""
        left = await self.flush(patience)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for sink in self._sinks:
            await sink.close()
        if left:
            log.warning("%d were not delivered: %s", left, self._trouble)
        return left

    async def _deliver_forever(self) -> None:
        pause = FIRST_PAUSE
        while True:
            await self._something()
            self._seal()
            batch = self._spool.head(BATCH)
            progress = await self._deliver(batch)
            async with self._progress:
                self._progress.notify_all()
            if progress:
                pause = FIRST_PAUSE
                continue
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _something(self) -> None:
        """Returns when there is a batch, or less and it has waited long enough or somebody flushes. What was left over
        by the last delivery waits no longer."""
        fresh = not len(self._spool)
        while not self.pending:
            self._wake.clear()
            await self._wake.wait()
        if not fresh or self.pending >= BATCH or self._flushes:
            return
        self._hurry.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await self._hurry.wait()

    async def _deliver(self, batch: list[Parcel]) -> bool:
        """Try every sink once for all; says whether any parcel is off our hands."""
        left = batch
        for sink in self._sinks if batch else ():
            outcomes = await sink.send(left)
            left = [one for one, what in zip(left, outcomes, strict=True) if not self._settled(sink, one, what)]
            if not left:
                break
        for parcel in left:
            self._counters.delivery_failures += 1
            self._spool.later(parcel.trajectory_id)
        return len(left) < len(batch) or not len(self._spool)

    def _settled(self, sink: Sink, parcel: Parcel, outcome: Outcome) -> bool:
        """Is the parcel off our hands?"""
        if isinstance(outcome, SinkDown):
            self._note(str(outcome))
            return False
        if outcome is None:
            self._counters.trajectories_delivered += 1
            self._counters.trajectories_delivered_by_http += sink.name == "http"
        else:
            self._counters.trajectories_rejected += 1
            log.error("%s was refused for good: %s", parcel.trajectory_id, outcome)
        self._spool.done(parcel.trajectory_id)
        return True

    def _note(self, trouble: str) -> None:
        """Log a trouble when it starts or changes, not at every try."""
        if trouble != self._trouble:
            log.warning("%d wait to be delivered: %s", self.pending, trouble)
        self._trouble = trouble
