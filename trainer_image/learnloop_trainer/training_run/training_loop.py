"""The loop of every training, of numbers and of language: resume, update, save, report, and leave when asked to."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Generic, Protocol, TypeVar

import torch

from learnloop_trainer import distributed, errors, progress_reporter, training_order
from learnloop_trainer.store import Store
from learnloop_trainer.store.run_store import unpack
from learnloop_trainer.training_run.checkpoints import UPDATE, Saved, Saver, newest, restore, save

FLUSH_SECONDS = 20.0  # of the usual 30 s between SIGTERM and SIGKILL
DURABLE_SECONDS = 330.0


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


class Training(Saved, Protocol):
    """A training that the loop drives."""

    title: str

    @property
    def over(self) -> bool:
        """Ended by its own bound, before all steps."""

    def iterate(self, run: Run) -> None:
        """Collective: learn for one round, and report it."""


T = TypeVar("T", bound=Training)
SETTLED_SECONDS = 30.0
SETTLED_SAVES = 2  # the second waits for the end of the first: the group makes progress
MOST_OF_TIME = 0.015  # share of the time that checkpoints may take


class Session(Generic[T]):
    """A training loop with its checkpoints."""

    def __init__(
        self, run: Run, begin: Callable[[training_order.Order, distributed.Group, torch.device, Store], T]
    ) -> None:
        """`begin`: makes the training at step 0."""
        self._run, self._order, self._group, self._reporter = run, run.order, run.group, run.reporter
        self._begin = partial(begin, run.order, run.group, run.device, run.store)
        self._begun = self._saved_at = time.monotonic()
        self._saves = 0
        self._pause, self._strain = 0.0, 1.0  # seconds the last checkpoint held training up, per processor second of it
        self._chief = run.group.place.rank == 0

    def train(self) -> T:
        """Train to `totalSteps` or the end of patience; returns when the final checkpoint is handed to the saver."""
        training = self._resumed()
        if training.validation is not None:
            training.validation.begin(training.learner.step, self._reporter.alive)
        self._begun = self._saved_at = time.monotonic()
        self._run.stopper.graceful = True  # before anybody can read that this rank trains
        try:
            self._reporter.phase("training", training.title)
            while not self._over(training):
                training.iterate(self._run)
                self._between(training)
            self._save(training)
        finally:
            self._run.stopper.graceful = False
        return training

    def _resumed(self) -> T:
        """Collective: the training at the newest durable checkpoint of this specification, else at step 0."""
        training = self._begin()
        body = self._group.broadcast(newest(self._run.store) if self._chief else None)
        if body and unpack(body)[1].get(UPDATE, "0") == str(self._order.number):
            try:
                progress_reporter.say(restore(training, self._order, self._group, body))
            except (ValueError, KeyError) as error:
                progress_reporter.say(f"the checkpoint cannot be used, starting again: {error}")
                training = self._begin()
        return training

    def _over(self, training: T) -> bool:
        patient = training.validation is None or not training.validation.over
        return training.over or training.learner.step >= self._order.spec.total_steps or not patient

    def _between(self, training: T) -> None:
        """Collective: after each round."""
        if time.monotonic() - self._begun > SETTLED_SECONDS or self._saves >= SETTLED_SAVES:
            distributed.settled()
        leaving, due = self._group.sum([float(self._run.stopper.requested), float(self._due())])
        if due or leaving:
            self._save(training)
        if leaving:
            self._leave()

    def _due(self) -> bool:
        """Only rank 0 decides, so all ranks agree; never while the last checkpoint is still under way.

        A large state is saved less often than asked for, so that saving never takes more than MOST_OF_TIME. Where
        processors are short, what the saver's thread needs of them costs training that much more.
        """
        cost = self._pause + self._run.saver.cost * self._strain
        wanted = max(self._order.spec.checkpoint.every_seconds, cost / MOST_OF_TIME)
        return self._chief and time.monotonic() - self._saved_at >= wanted and self._run.saver.idle

    def _save(self, training: T) -> None:
        began, processor = time.monotonic(), time.thread_time()
        body = save(training, self._order, self._group)
        self._saved_at, self._saves = time.monotonic(), self._saves + 1
        self._pause = self._saved_at - began
        self._strain = max(1.0, self._pause / max(1e-6, time.thread_time() - processor))
        if body is not None:
            self._run.saver.offer(body, training.learner.step)

    def _leave(self) -> None:
        """Some rank got SIGTERM and the checkpoint is taken: when it is durable that rank leaves, its group with it.

        Collective: the successor of a rank that left earlier would find rank 0 still saving and end its generation.
        """
        flushed = self._chief and self._run.saver.flush(FLUSH_SECONDS)
        (durable,) = self._group.sum([float(flushed)])
        if self._run.stopper.requested:
            raise errors.Terminated("SIGTERM: checkpoint saved" if durable else "SIGTERM: no time to save a checkpoint")
        raise errors.PeerLost("another rank had to stop")
