"""The loop of every training, of numbers and of language: resume, update, save, report, and leave when asked to."""

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from learnloop_api.wire.trajectory import ExperienceRead
from learnloop_environments import code_digest
from learnloop_environments.make import world_digest
from learnloop_trainer import distributed, errors, progress_reporter, recordings, store, training_order
from learnloop_trainer.saver_and_stopper import FLUSH_SECONDS, Run, newest
from learnloop_trainer.store.run_store import Arrays, pack, part, under, unpack
from learnloop_trainer.training_run.validation import Validation

FORMAT = "learnloop-checkpoint-3"
UPDATE = "update"
"""Key of a checkpoint's metadata: number of the update that it belongs to."""


class Training(Protocol):
    """Everything that changes while a rank trains, and what it was begun with."""

    title: str
    learner: Any  # algorithms.Learner, or language.network.LanguageLearner
    begun_from: str  # see initial_policy.begin_from
    read: recordings.ReadExperience
    validation: Validation | None

    @property
    def over(self) -> bool:
        """Ended by its own bound, before all steps."""

    @property
    def recent(self) -> deque[float]:
        """Returns of the latest episodes."""

    def iterate(self, run: Run) -> None:
        """Collective: learn for one round, and report it."""

    def own(self) -> Arrays:
        """State of this rank's environments, axis 0 = environment; empty where there are none."""

    def further(self) -> Arrays:
        """State of the whole run, without the learner's."""

    def restore(self, arrays: Arrays, place: training_order.Place) -> str:
        """Take up the learner, this rank's part of `each/` and what `further` holds; returns a note for the log."""


def fingerprint(order: training_order.Order) -> str:
    """Text that is equal for a checkpoint and the order that it belongs to, whichever policy serves by now."""
    data = order.spec.data
    code = "none"
    if data.environment is not None:
        code = (code_digest if data.language_model is None else world_digest)(data.environment)
    recipe = training_order.recipe_sha256(order.model_copy(update={"baseline_uri": None, "baseline_sha256": None}))
    return f"{FORMAT} {recipe} code={code}"


def save(training: Training, order: training_order.Order, group: distributed.Group) -> bytes | None:
    """Collective: the state of all ranks, on rank 0; None elsewhere. Raises PeerLost when weights differ.

    Shared state (weights, optimizer, counters) is stored once. What belongs to an environment is stored with axis 0 =
    environment over all ranks, so that a run may go on with another number of ranks: each takes its own rows.
    """
    learner, joined = training.learner, training.own()
    digests = [learner.network.digest()]
    if group.place.size > 1:
        parts = [unpack(body) for body in group.gather(pack(joined, {"weights": digests[0]}))]
        if not parts:
            return None
        joined = {name: np.concatenate([arrays[name] for arrays, _ in parts]) for name in joined}
        digests = [metadata["weights"] for _, metadata in parts]
    for rank, weights in enumerate(digests):
        if weights != digests[0]:
            raise errors.PeerLost(f"rank {rank}'s weights differ from rank 0's at step {learner.step}; reloading both")
    metadata = {
        "fingerprint": fingerprint(order),
        "step": str(learner.step),
        "world_size": str(group.place.size),
        "weights": digests[0],
        UPDATE: str(order.number),
        "begun_from": training.begun_from,
    }
    if training.read.note is not None:
        metadata["experience"] = training.read.note.model_dump_json()
    arrays = under("shared", learner.shared()) | under("each", joined)
    if training.validation is not None:
        arrays |= under("validation", training.validation.state())
    recent = {"recent": np.asarray(training.recent, dtype=np.float64)}
    return pack(arrays | recent | training.further(), metadata)


def restore(training: Training, order: training_order.Order, group: distributed.Group, body: bytes) -> str:
    """Take up a checkpoint; returns a note for the log. Raises ValueError when it belongs to another run."""
    arrays, metadata = unpack(body)
    if metadata.get("fingerprint") != fingerprint(order):
        raise ValueError("the checkpoint belongs to another specification")
    note = training.restore(arrays, group.place)
    if training.learner.network.digest() != metadata.get("weights"):
        raise ValueError("the checkpoint's weights do not have the digest it was saved with")
    # Another policy may serve by now: what counts is what the first attempt began with.
    training.begun_from = metadata.get("begun_from", training.begun_from)
    if "experience" in metadata:
        training.read.note = ExperienceRead.model_validate_json(metadata["experience"])
    if training.validation is not None:
        training.validation.restore(part(arrays, "validation"))
    training.recent.clear()
    training.recent.extend(float(value) for value in arrays["recent"])
    if metadata["world_size"] != str(group.place.size):
        note += f"; it was saved by {metadata['world_size']} ranks, {group.place.size} continue"
    return f"resuming at step {training.learner.step}{note}"


T = TypeVar("T", bound=Training)
SETTLED_SECONDS = 30.0
SETTLED_SAVES = 2  # the second waits for the end of the first: the group makes progress
MOST_OF_TIME = 0.015  # share of the time that checkpoints may take


class Session(Generic[T]):
    """A training loop with its checkpoints."""

    def __init__(
        self, run: Run, begin: Callable[[training_order.Order, distributed.Group, torch.device, store.Store], T]
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
