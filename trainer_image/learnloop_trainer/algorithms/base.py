"""What the training loop asks of an algorithm."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations, VectorEnvironment
from learnloop_environments.errors import ConfigError
from learnloop_trainer.distributed.torch_group import Group
from learnloop_trainer.neural.dense_networks import Network
from learnloop_trainer.recordings import Recording

Arrays = dict[str, NDArray[np.generic]]


def _no_recording() -> Recording:
    raise ConfigError("spec.data", "", "names no recorded experience", "set learningAgentRef or bc.recording")


def _no_memory() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Occasion:
    """The run as an algorithm sees it: the same on all ranks but for the group's own rank."""

    seed: int
    total_steps: int
    environments: int  # over all ranks
    group: Group
    recording: Callable[[], Recording] = _no_recording  # collective; of logged experience, where a run learns from it
    memory: Callable[[], Recording | None] = _no_memory  # collective; the same, where a run can do without it


@dataclass(frozen=True, slots=True)
class Experience:
    """What happened in some consecutive vector steps; axes [steps, environments]."""

    reward: NDArray[np.float32]
    ended: NDArray[np.bool_]
    losses: Mapping[str, float] = field(default_factory=dict)  # of the newest update, where the learner tells
    actions: NDArray[np.generic] | None = None  # that were taken, where the learner tells
    returns: tuple[float, ...] | None = None  # of the episodes that ended, where `reward` has only pieces of them


class Learner(Protocol):
    """An algorithm with its state. All ranks call the same methods in the same order."""

    network: Network  # what is exported
    environment: VectorEnvironment
    step: int  # environment steps of all ranks together

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """Act and learn for a while from the observations given; returns the next ones and what happened."""

    def shared(self) -> Arrays:
        """State that is equal on all ranks: weights, optimizer, counters."""

    def own(self) -> Arrays:
        """State of this rank's environments, axis 0 = environment (a replay buffer, for one)."""

    def restore(self, shared: Arrays, own: Arrays) -> None:
        """Take both up again; raises KeyError or ValueError when they belong to another network."""
