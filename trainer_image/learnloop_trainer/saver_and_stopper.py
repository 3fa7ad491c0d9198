"""One rank's run: its order, the ranks, and where its results go."""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import torch

from learnloop_trainer import distributed, errors, progress_reporter, training_order
from learnloop_trainer.store import Store

FLUSH_SECONDS = 20.0  # of the usual 30 s between SIGTERM and SIGKILL
DURABLE_SECONDS = 330.0


class Saver:
    """Makes checkpoints durable in the background; a newer one replaces one that still waits."""

    def __init__(self, store: Store, tell: Callable[[str], None] = lambda trouble: None) -> None:
        """Idle until the first `offer`. `tell` gets each problem, and an empty text when saving works again."""
        self._store, self.tell = store, tell
        self._condition = threading.Condition()
        self._waiting: tuple[bytes, int] | None = None
        self._busy = False
        self.durable: tuple[str, int] | None = None  # SHA-256 and step of the newest durable one
        self.cost = 0.0  # processor seconds that making the newest one durable took, on top of the training
        self._problem: errors.StoreUnavailable | errors.StoreRefused | None = None
        self._thread: threading.Thread | None = None

    def offer(self, body: bytes, step: int) -> None:
        with self._condition:
            self._waiting = (body, step)
            self._condition.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
                self._thread.start()

    @property
    def idle(self) -> bool:
        return self._waiting is None and not self._busy

    def flush(self, seconds: float) -> bool:
        """Wait until everything offered is durable; False when the time is up or the last attempt failed."""
        end = time.monotonic() + seconds
        with self._condition:
            while not self.idle and time.monotonic() < end:
                self._condition.wait(end - time.monotonic())
            return self.idle and self._problem is None

    def require(self, seconds: float) -> str:
        """As `flush`; returns the digest of the newest checkpoint or raises what kept it from becoming durable."""
        done = self.flush(seconds)
        if self._problem is not None:
            raise self._problem
        if not done or self.durable is None:
            raise errors.StoreUnavailable(f"the final checkpoint was not durable after {seconds:.0f} s")
        return self.durable[0]

    def _run(self) -> None:
        while True:
            with self._condition:
                while self._waiting is None:
                    self._condition.wait()
                body, step = self._waiting
                self._waiting, self._busy = None, True
            problem: errors.StoreUnavailable | errors.StoreRefused | None = None
            began = time.thread_time()
            try:
                self.durable = (self._store.put_checkpoint(body, step), step)
                self.tell("")
            except (errors.StoreUnavailable, errors.StoreRefused) as error:
                problem = error
                text = f"the checkpoint of step {step} was not saved, training continues: {error}"
                progress_reporter.say(text)
                self.tell(text)
            with self._condition:
                if problem is None:
                    cost = time.thread_time() - began
                    # A store that was away is asked many times; the size of a state at most doubles from save to save.
                    self.cost = min(cost, 2 * self.cost or cost)
                self._busy, self._problem = False, problem
                self._condition.notify_all()


class Stopper:
    """Turns SIGTERM into a request while training, and into Terminated immediately everywhere else."""

    def __init__(self) -> None:
        self.requested = False
        self.graceful = False

    def install(self) -> None:
        """Listen for SIGTERM; main thread only."""
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requested = True
        if not self.graceful:
            raise errors.Terminated("SIGTERM: leaving")


def newest(store: Store) -> bytes | None:
    """The newest checkpoint that is whole; raises StoreRefused when there are some and all of them are damaged."""
    try:
        saved = store.checkpoint()
    except errors.StoreRefused as damage:
        progress_reporter.say(f"{damage}; going back to the one before")
        saved = store.checkpoint(back=1)
        if saved is None:
            raise
    return saved.body if saved else None


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that a session and a proof share; `began` is wall-clock time."""

    order: training_order.Order
    group: distributed.Group
    device: torch.device
    store: Store
    reporter: progress_reporter.Reporter
    saver: Saver
    stopper: Stopper
    began: float

    def durable(self) -> str:
        """Wait for the final checkpoint; returns its digest. Raises StoreUnavailable or StoreRefused."""
        return self.saver.require(DURABLE_SECONDS)
