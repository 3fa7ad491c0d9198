"""Checkpoints of every training: which run they belong to, saved by all ranks, made durable, and taken up again."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from learnloop_api.wire.trajectory import ExperienceRead
from learnloop_environments import code_digest
from learnloop_environments.make import world_digest
from learnloop_trainer import distributed, errors, progress_reporter, recordings, training_order
from learnloop_trainer.store import Store
from learnloop_trainer.store.run_store import Arrays, pack, part, under, unpack
from learnloop_trainer.training_run.validation import Validation

FORMAT = "learnloop-checkpoint-3"
UPDATE = "update"
"""Key of a checkpoint's metadata: number of the update that it belongs to."""


class Saved(Protocol):
    """Everything that changes while a rank trains, and what it was begun with."""

    learner: Any  # algorithms.Learner, or language.network.LanguageLearner
    begun_from: str  # see initial_policy.begin_from
    read: recordings.ReadExperience
    validation: Validation | None

    @property
    def recent(self) -> deque[float]:
        """Returns of the latest episodes."""

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


def save(training: Saved, order: training_order.Order, group: distributed.Group) -> bytes | None:
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


def restore(training: Saved, order: training_order.Order, group: distributed.Group, body: bytes) -> str:
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
