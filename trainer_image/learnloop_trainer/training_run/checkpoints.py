"""Checkpoints: what they hold, and when they are written.

Shared state (weights, optimizer, counters) is stored once. Everything that belongs to an environment is stored with
axis 0 = environment over all ranks, so that a run may go on with another number of ranks: each takes its own rows.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.trajectory import ExperienceRead
from learnloop_environments import VectorEnvironment, code_digest
from learnloop_environments.base import Observations
from learnloop_environments.wrappers import innermost
from learnloop_trainer.algorithms import Learner
from learnloop_trainer.distributed.torch_group import Group
from learnloop_trainer.errors import PeerLost, StoreRefused, StoreUnavailable
from learnloop_trainer.evaluation.suite.dimensions import Milestones
from learnloop_trainer.progress_reporter import RECENT, TRAIL, say
from learnloop_trainer.recordings import ReadExperience, Recording
from learnloop_trainer.store import Store
from learnloop_trainer.store.run_store import Arrays, pack, part, under, unpack
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.curriculum import CurriculumProgress
from learnloop_trainer.training_run.validation import ValidationState

FORMAT = "learnloop-checkpoint-2"


@dataclass(slots=True)
class Episodes:
    """Undiscounted returns of this rank's episodes."""

    running: NDArray[np.float64]
    recent: deque[float]
    trail: deque[float]
    """For who looks for anomalies, of one difficulty; begins anew with a process, checkpoints do without it."""

    def note(self, reward: NDArray[np.float32], ended: NDArray[np.bool_]) -> None:
        """Account for rewards [steps, environments]."""
        for step_reward, step_ended in zip(reward, ended, strict=True):
            self.running += step_reward
            if step_ended.any():
                self.ended_with(self.running[step_ended].tolist())
                self.running[step_ended] = 0.0

    def ended_with(self, returns: Iterable[float]) -> None:
        """Account for episodes that ended with these returns."""
        for told in returns:
            self.recent.append(told)
            self.trail.append(told)


def no_episodes(count: int) -> Episodes:
    """The state at the start."""
    return Episodes(np.zeros(count), deque(maxlen=RECENT), deque(maxlen=TRAIL))


@dataclass(slots=True)
class Training:
    """Everything that changes while a rank trains."""

    learner: Learner
    environment: VectorEnvironment
    observation: Observations
    episodes: Episodes
    curriculum: CurriculumProgress | None = None
    milestones: Milestones | None = None
    begun_from: str = ""  # see initial.begin_from
    read: ReadExperience = field(default_factory=ReadExperience)
    validation: ValidationState | None = None


def fingerprint(order: Order) -> str:
    """What must be equal for a checkpoint to belong to an order."""
    spec = order.spec
    parameters = order.parameters.model_dump_json()
    code = code_digest(spec.data.environment) if spec.data.environment else f"none share={order.logged_share}"
    world = f"{spec.data.world} code={code}"
    text = f"{FORMAT} {spec.algorithm} {world} seed={spec.seed} steps={spec.total_steps} {parameters}"
    data = spec.data.model_dump(include={"level", "randomise", "credit", "rewards", "filter"}, exclude_defaults=True)
    if spec.data.rewards == "policy" and order.reward_policy is not None:
        data |= {"reward_policy": order.reward_policy.model_dump(), "success_return": spec.data.success_return}
    algorithm = order.parameters.algorithm
    if (algorithm.from_log or algorithm.remembers_log) and spec.data.learning_agent_ref is not None:
        data["agent"] = spec.data.learning_agent_ref.name  # the recording in the checkpoint is its log
    rest = spec.model_dump(include={"curriculum", "shaping", "safety", "initial_policy"}, exclude_none=True)
    if spec.evaluation.while_training is not None:
        rest["while_training"] = spec.evaluation.while_training.model_dump()
    if spec.samplers is not None:
        rest["samplers"] = spec.samplers.model_dump(exclude={"count"})
    return text + (f" {json.dumps([data, rest], sort_keys=True)}" if data or rest else "")


def save(training: Training, order: Order, group: Group) -> bytes | None:
    """Collective: the state of all ranks, on rank 0; None elsewhere. Raises PeerLost when weights differ."""
    learner = training.learner
    own = under("own", learner.own()) | {"running": training.episodes.running}
    own |= under("environment", training.environment.state() or {})
    mine = {"weights": learner.network.digest()}
    if group.place.size == 1:
        parts = [(own, mine)]  # packed once, below
    else:
        bodies = group.gather(pack(own, mine))
        if not bodies:
            return None
        parts = [unpack(body) for body in bodies]
    digests = [metadata["weights"] for _, metadata in parts]
    for rank, weights in enumerate(digests):
        if weights != digests[0]:
            raise PeerLost(f"rank {rank}'s weights differ from rank 0's at step {learner.step}; reloading both")
    joined: Arrays = own
    if len(parts) > 1:
        joined = {name: np.concatenate([arrays[name] for arrays, _ in parts]) for name in own}
    recent = np.asarray(training.episodes.recent, dtype=np.float64)
    metadata = {
        "fingerprint": fingerprint(order),
        "step": str(learner.step),
        "world_size": str(group.place.size),
        "weights": digests[0],
        "begun_from": training.begun_from,
    }
    if training.read.note is not None:
        metadata["experience"] = training.read.note.model_dump_json()
    rest: Arrays = {"recent": recent}
    if training.curriculum is not None:
        rest |= under("curriculum", training.curriculum.state())
    if training.milestones is not None:
        rest |= under("milestones", training.milestones.state())
    if training.validation is not None:
        rest |= under("validation", training.validation.state())
    if training.read.proof is not None:
        rest |= under("proof", training.read.proof.arrays())
    return pack(under("shared", learner.shared()) | under("each", joined) | rest, metadata)


def restore(training: Training, order: Order, group: Group, body: bytes) -> str:
    """Take up a checkpoint; returns a note for the log. Raises ValueError when it belongs to another run."""
    arrays, metadata = unpack(body)
    if metadata.get("fingerprint") != fingerprint(order):
        raise ValueError("the checkpoint found belongs to another specification")
    members = group.place.share(len(arrays["each/running"]))
    each = {name: array[members.start : members.stop] for name, array in part(arrays, "each").items()}
    learner = training.learner
    learner.restore(part(arrays, "shared"), part(each, "own"))
    if learner.network.digest() != metadata.get("weights"):
        raise ValueError("the checkpoint's weights do not have the digest it was saved with")
    # Another policy may serve by now: what counts is what the first attempt began with.
    training.begun_from = metadata.get("begun_from", training.begun_from)
    if "experience" in metadata:
        training.read.note = ExperienceRead.model_validate_json(metadata["experience"])
    note = f"resuming at step {learner.step}"
    inner = part(each, "environment")
    if inner:
        training.observation = training.environment.restore(inner)
        training.episodes.running = np.array(each["running"], dtype=np.float64)
    else:
        note += "; this environment cannot be saved, its episodes begin anew"
    if training.curriculum is not None:
        training.curriculum.restore(part(arrays, "curriculum"))
        innermost(training.environment).level = training.curriculum.level
        note += f"; level {training.curriculum.name}"
    if training.milestones is not None:
        training.milestones.restore(part(arrays, "milestones"))
    if training.validation is not None:
        training.validation.restore(part(arrays, "validation"))
    training.read.proof = Recording.of(part(arrays, "proof"))
    training.episodes.recent = deque((float(value) for value in arrays["recent"]), maxlen=RECENT)
    if metadata["world_size"] != str(group.place.size):
        note += f"; it was saved by {metadata['world_size']} ranks, {group.place.size} go on"
    return note


class Saver:
    """Makes checkpoints durable in the background; a newer one replaces one that still waits."""

    def __init__(self, store: Store, tell: Callable[[str], None] = lambda trouble: None) -> None:
        """Idle until the first `offer`. `tell` hears what is wrong, and an empty text when it is right again."""
        self._store, self._tell = store, tell
        self._condition = threading.Condition()
        self._waiting: tuple[bytes, int] | None = None
        self._busy = False
        self.durable: tuple[str, int] | None = None  # SHA-256 and step of the newest durable one
        self.cost = 0.0  # processor seconds that making the newest one durable took, beside the training
        self._problem: StoreUnavailable | StoreRefused | None = None
        self._thread: threading.Thread | None = None

    def offer(self, body: bytes, step: int) -> None:
        """Hand over a checkpoint and go on."""
        with self._condition:
            self._waiting = (body, step)
            self._condition.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
                self._thread.start()

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing is under way."""
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
            raise StoreUnavailable(f"the final checkpoint was not durable after {seconds:.0f} s")
        return self.durable[0]

    def _run(self) -> None:
        while True:
            with self._condition:
                while self._waiting is None:
                    self._condition.wait()
                body, step = self._waiting
                self._waiting, self._busy = None, True
            problem: StoreUnavailable | StoreRefused | None = None
            began = time.thread_time()
            try:
                self.durable = (self._store.put_checkpoint(body, step), step)
                self._tell("")
            except (StoreUnavailable, StoreRefused) as error:
                problem = error
                text = f"the checkpoint of step {step} was not saved, training goes on: {error}"
                say(text)
                self._tell(text)
            with self._condition:
                self.cost = time.thread_time() - began
                self._busy, self._problem = False, problem
                self._condition.notify_all()
