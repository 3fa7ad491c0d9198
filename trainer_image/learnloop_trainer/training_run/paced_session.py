"""The loop of a session, its pace and its figures."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.training import ACTION_SHARE, FIGURES, MOST_ACTIONS
from learnloop_environments.wrappers import Wrapper
from learnloop_trainer.distributed.torch_group import settled
from learnloop_trainer.errors import PeerLost, Terminated
from learnloop_trainer.neural.schedules import step_size
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.run import FLUSH_SECONDS, Run, newest

_TOTAL = "total"
"""Name of the sum of several losses."""


class ActionTally:
    """Shares of the discrete actions that were taken since the last look."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def note(self, actions: NDArray[np.generic] | None, count: int) -> None:
        """Actions of any shape, numbered from 0 to `count` - 1; None: they are not discrete."""
        if actions is None or not np.issubdtype(actions.dtype, np.integer):
            return
        counts = np.bincount(np.asarray(actions, dtype=np.int64).ravel(), minlength=count)
        self._counts = counts if len(counts) != len(self._counts) else self._counts + counts

    def take(self) -> dict[str, float]:
        """The shares, and count again from 0; nothing of more than 32 actions."""
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
    figures: dict[str, float] = {}
    done = min(1.0, learner.step / total_steps)
    if hasattr(parameters, "learning_rate") and hasattr(parameters, "learning_rate_schedule"):
        figures["learning_rate"] = step_size(parameters, parameters.learning_rate, done)
    if hasattr(parameters, "epsilon_start"):
        fallen = min(1.0, done / max(1e-9, parameters.exploration_fraction))
        figures["epsilon"] = parameters.epsilon_start + fallen * (parameters.epsilon_end - parameters.epsilon_start)
    norm = getattr(getattr(learner, "network", None), "gradient_norm", None)
    if norm is not None:
        figures["gradient_norm"] = float(norm)
    if hasattr(getattr(learner, "replay", None), "filled"):
        figures["replay_transitions"] = float(learner.replay.filled * len(learner.environment.members))
    stopped = interventions(learner.environment)
    if stopped is not None:
        figures["invalid_actions"] = float(stopped)
    named = {("loss" if name == _TOTAL else name): value for name, value in losses.items()}
    figures |= {name: float(value) for name, value in named.items() if name in FIGURES}
    return {name: value for name, value in figures.items() if np.isfinite(value)}


def interventions(environment: Any) -> int | None:
    """How many actions a safety shield replaced; None where there is none."""
    while isinstance(environment, Wrapper):
        if hasattr(environment, "interventions"):
            return int(np.sum(environment.interventions))
        environment = environment.inner
    return None


T = TypeVar("T", bound=Any)
SETTLED_SECONDS = 30.0
SETTLED_SAVES = 2  # the second waits for the end of the first: the group makes progress
MOST_OF_TIME = 0.015  # share of the time that checkpoints may take


class PacedSession(ABC, Generic[T]):
    """A training loop with its checkpoints; a kind of training says what a state is."""

    def __init__(self, run: Run) -> None:
        self._run, self._order, self._group, self._reporter = run, run.order, run.group, run.reporter
        self._begun = self._saved_at = time.monotonic()
        self._saves = 0
        self._pause, self._strain = 0.0, 1.0  # seconds the last checkpoint held training up, per processor second of it
        self._chief = run.group.place.rank == 0

    @abstractmethod
    def _begin(self) -> T:
        """A training at step 0."""

    @abstractmethod
    def _restore(self, training: T, body: bytes) -> str:
        """Take up a checkpoint; returns a note. Raises KeyError or ValueError where it does not fit."""

    @abstractmethod
    def _packed(self, training: T) -> bytes | None:
        """Collective: the state of all ranks, on rank 0; None elsewhere."""

    @abstractmethod
    def _iterate(self, training: T) -> None:
        """One round."""

    def _resumed(self) -> T:
        """Collective: the training at the newest durable checkpoint of this specification, else at step 0."""
        training = self._begin()
        body = self._group.broadcast(newest(self._run.store) if self._chief else None)
        if body:
            try:
                say(self._restore(training, body))
            except (ValueError, KeyError) as error:
                say(f"the checkpoint cannot be used, starting again: {error}")
                training = self._begin()
        return training

    def _over(self, training: T) -> bool:
        patient = training.validation is None or not training.validation.over
        return training.learner.step >= self._order.spec.total_steps or not patient

    def _train(self, training: T, title: str) -> None:
        """Until it is over; returns when the final checkpoint is handed to the saver."""
        self._begun = self._saved_at = time.monotonic()
        self._run.stopper.graceful = True  # before anybody can read that this rank trains
        try:
            self._reporter.phase("training", title)
            while not self._over(training):
                self._iterate(training)
                self._between(training)
            self._save(training)
        finally:
            self._run.stopper.graceful = False

    def _between(self, training: T) -> None:
        """Collective: after each round."""
        if time.monotonic() - self._begun > SETTLED_SECONDS or self._saves >= SETTLED_SAVES:
            settled()
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
        body = self._packed(training)
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
            raise Terminated("SIGTERM: checkpoint saved" if durable else "SIGTERM: no time to save a checkpoint")
        raise PeerLost("another rank had to stop")
