"""Checkpoints: what they hold, and when they are written.

Shared state (weights, optimizer, counters) is stored once. Everything that belongs to an environment is stored with
axis 0 = environment over all ranks, so that a run may go on with another number of ranks: each takes its own rows.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_api.wire.trajectory import ExperienceRead
from learnloop_environments import VectorEnvironment, code_digest
from learnloop_environments.base import Observations
from learnloop_environments.conversations.make import world_digest
from learnloop_environments.wrappers import innermost
from learnloop_trainer.algorithms import Learner
from learnloop_trainer.distributed.torch_group import Group
from learnloop_trainer.errors import PeerLost
from learnloop_trainer.evaluation.suite.dimensions import Milestones
from learnloop_trainer.manifest.record import recipe_sha256
from learnloop_trainer.progress_reporter import RECENT, TRAIL
from learnloop_trainer.recordings import ReadExperience, Recording
from learnloop_trainer.store.run_store import Arrays, pack, part, under, unpack
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.curriculum import CurriculumProgress
from learnloop_trainer.training_run.validation import ValidationState

FORMAT = "learnloop-checkpoint-3"


@dataclass(slots=True)
class Episodes:
    """Undiscounted returns of this rank's episodes."""

    running: NDArray[np.float64]
    recent: deque[float]
    trail: deque[float]
    """Of one difficulty, in which the operator looks for anomalies; no part of checkpoints."""

    def note(self, reward: NDArray[np.float32], ended: NDArray[np.bool_]) -> None:
        """Account for rewards [steps, environments]."""
        for step_reward, step_ended in zip(reward, ended, strict=True):
            self.running += step_reward
            if step_ended.any():
                ended = self.running[step_ended].tolist()
                self.recent.extend(ended)
                self.trail.extend(ended)
                self.running[step_ended] = 0.0


def no_episodes(count: int) -> Episodes:
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
    begun_from: str = ""  # see initial_policy.begin_from
    read: ReadExperience = field(default_factory=ReadExperience)
    validation: ValidationState | None = None

    @property
    def recent(self) -> deque[float]:
        return self.episodes.recent


def fingerprint(order: Order) -> str:
    """Text that is equal for a checkpoint and the order that it belongs to, whichever policy serves by now."""
    data = order.spec.data
    code = "none"
    if data.environment is not None:
        code = (code_digest if data.language_model is None else world_digest)(data.environment)
    recipe = recipe_sha256(order.model_copy(update={"baseline_uri": None, "baseline_sha256": None}))
    return f"{FORMAT} {recipe} code={code}"


def same_weights(digests: Sequence[str], step: int) -> str:
    """The digest of all ranks' weights; raises PeerLost where they differ."""
    for rank, weights in enumerate(digests):
        if weights != digests[0]:
            raise PeerLost(f"rank {rank}'s weights differ from rank 0's at step {step}; reloading both")
    return digests[0]


def described(training: Any, mark: str, group: Group, weights: str) -> tuple[Arrays, dict[str, str]]:
    """Arrays and metadata that checkpoints of numbers and of language models have in common."""
    metadata = {
        "fingerprint": mark,
        "step": str(training.learner.step),
        "world_size": str(group.place.size),
        "weights": weights,
        "begun_from": training.begun_from,
    }
    if training.read.note is not None:
        metadata["experience"] = training.read.note.model_dump_json()
    judged = {} if training.validation is None else under("validation", training.validation.state())
    return judged | {"recent": np.asarray(training.recent, dtype=np.float64)}, metadata


def unpacked(body: bytes, mark: str) -> tuple[Arrays, dict[str, str]]:
    """Arrays and metadata of a checkpoint with this fingerprint; raises ValueError for another one."""
    arrays, metadata = unpack(body)
    if metadata.get("fingerprint") != mark:
        raise ValueError("the checkpoint belongs to another specification")
    return arrays, metadata


def take_up(training: Any, arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """The part of `described`, once the learner is restored; raises ValueError where its weights are others."""
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


def save(training: Training, order: Order, group: Group) -> bytes | None:
    """Collective: the state of all ranks, on rank 0; None elsewhere. Raises PeerLost when weights differ."""
    learner = training.learner
    own = under("own", learner.own()) | {"running": training.episodes.running}
    own |= under("environment", training.environment.state() or {})
    weights = {"weights": learner.network.digest()}
    if group.place.size == 1:
        parts = [(own, weights)]  # packed once, below
    else:
        bodies = group.gather(pack(own, weights))
        if not bodies:
            return None
        parts = [unpack(body) for body in bodies]
    digest = same_weights([metadata["weights"] for _, metadata in parts], learner.step)
    joined: Arrays = own
    if len(parts) > 1:
        joined = {name: np.concatenate([arrays[name] for arrays, _ in parts]) for name in own}
    rest, metadata = described(training, fingerprint(order), group, digest)
    if training.curriculum is not None:
        rest |= under("curriculum", training.curriculum.state())
    if training.milestones is not None:
        rest |= under("milestones", training.milestones.state())
    if training.read.proof is not None:
        rest |= under("proof", training.read.proof.arrays())
    return pack(under("shared", learner.shared()) | under("each", joined) | rest, metadata)


def restore(training: Training, order: Order, group: Group, body: bytes) -> str:
    """Take up a checkpoint; returns a note for the log. Raises ValueError when it belongs to another run."""
    arrays, metadata = unpacked(body, fingerprint(order))
    members = group.place.share(len(arrays["each/running"]))
    each = {name: array[members.start : members.stop] for name, array in part(arrays, "each").items()}
    learner = training.learner
    learner.restore(part(arrays, "shared"), part(each, "own"))
    take_up(training, arrays, metadata)
    note = f"resuming at step {learner.step}"
    inner = part(each, "environment")
    if inner:
        training.observation = training.environment.restore(inner)
        training.episodes.running = np.array(each["running"], dtype=np.float64)
    else:
        note += "; this environment cannot be saved, its episodes begin again"
    if training.curriculum is not None:
        training.curriculum.restore(part(arrays, "curriculum"))
        innermost(training.environment).level = training.curriculum.level
        note += f"; level {training.curriculum.name}"
    if training.milestones is not None:
        training.milestones.restore(part(arrays, "milestones"))
    training.read.proof = Recording.of(part(arrays, "proof"))
    if metadata["world_size"] != str(group.place.size):
        note += f"; it was saved by {metadata['world_size']} ranks, {group.place.size} go on"
    return note
