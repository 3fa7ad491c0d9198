"""The loop of a session, its pace and its figures."""

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import FrameType
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import ACTION_SHARE, FIGURES, MOST_ACTIONS
from learnloop_environments.wrappers import Wrapper
from learnloop_trainer.distributed.rendezvous import settled
from learnloop_trainer.distributed.torch_group import Group
from learnloop_trainer.errors import PeerLost, StoreRefused, Terminated
from learnloop_trainer.neural.schedules import step_size
from learnloop_trainer.progress_reporter import Reporter, say
from learnloop_trainer.store import Store
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.checkpoints import Saver

_TOTAL = "total"
"""What learners with several losses call their sum."""


class ActionTally:
    """Shares of the discrete actions that were taken since the last look."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def note(self, actions: NDArray[np.generic] | None, count: int) -> None:
        """Actions of any shape, numbered from 0 to `count` - 1; None: they are no discrete ones."""
        if actions is None or not np.issubdtype(actions.dtype, np.integer):
            return
        found = np.bincount(np.asarray(actions, dtype=np.int64).ravel(), minlength=count)
        self._counts = found if len(found) != len(self._counts) else self._counts + found

    def take(self) -> dict[str, float]:
        """The shares, and begins anew; nothing of more than 32 actions."""
        counts, self._counts = self._counts, np.zeros(0, dtype=np.int64)
        total = counts.sum()
        if not total or len(counts) > MOST_ACTIONS:
            return {}
        return {f"{ACTION_SHARE}{index}": float(count / total) for index, count in enumerate(counts)}


def learner_figures(learner: Any, total_steps: int, losses: Mapping[str, float]) -> dict[str, float]:
    """Figures as `learnloop_api.wire.training` names them; those that the learner does not have are left out.

    Reads tensors, so that a GPU is waited for: once a second is often enough.
    """
    parameters: Any = getattr(learner, "parameters", None)
    found: dict[str, float] = {}
    done = min(1.0, learner.step / total_steps)
    if hasattr(parameters, "learning_rate") and hasattr(parameters, "learning_rate_schedule"):
        found["learning_rate"] = step_size(parameters, parameters.learning_rate, done)
    if hasattr(parameters, "epsilon_start"):
        fallen = min(1.0, done / max(1e-9, parameters.exploration_fraction))
        found["epsilon"] = parameters.epsilon_start + fallen * (parameters.epsilon_end - parameters.epsilon_start)
    norm = getattr(getattr(learner, "network", None), "gradient_norm", None)
    if norm is not None:
        found["gradient_norm"] = float(norm)
    if hasattr(getattr(learner, "replay", None), "filled"):
        found["replay_transitions"] = float(learner.replay.filled * len(learner.environment.members))
    if hasattr(learner, "intake"):
        found |= learner.intake.figures()
    stopped = interventions(learner.environment)
    if stopped is not None:
        found["invalid_actions"] = float(stopped)
    told = {("loss" if name == _TOTAL else name): value for name, value in losses.items()}
    found |= {name: float(value) for name, value in told.items() if name in FIGURES}
    return {name: value for name, value in found.items() if np.isfinite(value)}


def interventions(environment: Any) -> int | None:
    """How many actions a safety shield replaced; None where there is none."""
    while isinstance(environment, Wrapper):
        if hasattr(environment, "interventions"):
            return int(np.sum(environment.interventions))
        environment = environment.inner
    return None


T = TypeVar("T")

FLUSH_SECONDS = 20.0  # of the usual 30 s between SIGTERM and SIGKILL
SETTLED_SECONDS = 30.0
SETTLED_SAVES = 2  # the second is taken only when the first is no longer under way: the group makes progress
MOST_OF_TIME = 0.015  # share of the time that checkpoints may take


class Stopper:
    """Turns SIGTERM into a request while training, and into Terminated at once everywhere else."""

    def __init__(self) -> None:
        """Not yet installed."""
        self.requested = False
        self.graceful = False

    def install(self) -> None:
        """Listen for SIGTERM; main thread only."""
        signal.signal(signal.SIGTERM, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requested = True
        if not self.graceful:
            raise Terminated("SIGTERM: leaving")


def newest(store: Store) -> bytes | None:
    """The newest checkpoint that is whole; raises StoreRefused when there are some and all of them are damaged."""
    try:
        saved = store.checkpoint()
    except StoreRefused as damage:
        say(f"{damage}; going back to the one before")
        saved = store.checkpoint(back=1)
        if saved is None:
            raise
    return saved.body if saved else None


class PacedSession(ABC, Generic[T]):
    """A training loop with its checkpoints; a kind of training says what a state is."""

    def __init__(
        self, order: Order, group: Group, store: Store, reporter: Reporter, saver: Saver, stopper: Stopper
    ) -> None:
        """Nothing happens before training begins."""
        self._order, self._group, self._store = order, group, store
        self._reporter, self._saver, self._stopper = reporter, saver, stopper
        self._begun = self._saved_at = time.monotonic()
        self._saves = 0
        self._pause, self._strain = 0.0, 1.0  # seconds the last checkpoint held training up, per processor second of it
        self._chief = group.place.rank == 0

    @abstractmethod
    def _packed(self, training: T) -> bytes | None:
        """Collective: the state of all ranks, on rank 0; None elsewhere."""

    @abstractmethod
    def _step(self, training: T) -> int:
        """How far it is, of totalSteps."""

    def _over(self, training: T) -> bool:
        """Is there nothing more to learn?"""
        return self._step(training) >= self._order.spec.total_steps

    @abstractmethod
    def _iterate(self, training: T) -> None:
        """One round."""

    def _train(self, training: T, told: str) -> None:
        """Until it is over; returns when the final checkpoint is handed to the saver."""
        self._begun = self._saved_at = time.monotonic()
        self._stopper.graceful = True  # before anybody can read that this rank trains
        try:
            self._reporter.phase("training", told)
            while not self._over(training):
                self._iterate(training)
                self._between(training)
            self._save(training)
        finally:
            self._stopper.graceful = False

    def _between(self, training: T) -> None:
        """Collective: after each round."""
        if time.monotonic() - self._begun > SETTLED_SECONDS or self._saves >= SETTLED_SAVES:
            settled()
        leaving, due = self._group.sum([float(self._stopper.requested), float(self._due())])
        if due or leaving:
            self._save(training)
        if leaving:
            self._leave()

    def _due(self) -> bool:
        """Only rank 0 decides, so all ranks agree; never while the last checkpoint is still under way.

        A large state is saved less often than asked for, so that saving never takes more than MOST_OF_TIME. Where
        processors are short, what the saver's thread needs of them costs training that much more.
        """
        cost = self._pause + self._saver.cost * self._strain
        wanted = max(self._order.spec.checkpoint.every_seconds, cost / MOST_OF_TIME)
        return self._chief and time.monotonic() - self._saved_at >= wanted and self._saver.idle

    def _save(self, training: T) -> None:
        began, processor = time.monotonic(), time.thread_time()
        body = self._packed(training)
        self._saved_at, self._saves = time.monotonic(), self._saves + 1
        self._pause = self._saved_at - began
        self._strain = max(1.0, self._pause / max(1e-6, time.thread_time() - processor))
        if body is not None:
            self._saver.offer(body, self._step(training))

    def _leave(self) -> None:
        """Some rank got SIGTERM and the checkpoint is taken: when it is durable that rank leaves, its group with it.

        Collective: the successor of a rank that left earlier would find rank 0 still saving and end its generation.
        """
        flushed = self._chief and self._saver.flush(FLUSH_SECONDS)
        (durable,) = self._group.sum([float(flushed)])
        if self._stopper.requested:
            raise Terminated("SIGTERM: checkpoint saved" if durable else "SIGTERM: no time to save a checkpoint")
        raise PeerLost("another rank was told to stop")
