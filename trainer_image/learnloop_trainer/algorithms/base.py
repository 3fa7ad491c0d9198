"""What the training loop asks of an algorithm."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments.base import Observations, VectorEnvironment
from learnloop_environments.errors import ConfigError
from learnloop_trainer.distributed.torch_group import Group
from learnloop_trainer.neural.dense_networks import Network
from learnloop_trainer.neural.schedules import step_size
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


class StatefulLearner:
    """The networks of a learner, the targets that follow them, its step, and how a checkpoint holds them."""

    def __init__(
        self,
        parameters: Parameters,
        environment: VectorEnvironment,
        occasion: Occasion,
        network: Network,
        *,
        others: Mapping[str, Network] | None = None,
        targets: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """`network` is exported, `others` are not; `targets` are flat parameters, the network's under the name ''."""
        self.parameters, self.environment, self.occasion, self.network = parameters, environment, occasion, network
        self.others, self.targets = dict(others or {}), dict(targets or {})
        self.step = 0

    def rate(self, start: float | None = None) -> float:
        """The step size now; `start`: at the beginning of the run, learningRate unless given."""
        start = self.parameters.learning_rate if start is None else start
        return step_size(self.parameters, start, self.step / self.occasion.total_steps)

    def apply(self, network: Network, rate: float | None = None, *, clear: bool = True) -> None:
        """Collective: add the ranks' gradients up and take one step of Adam; see `Network.adam`."""
        self.occasion.group.add_up(network.gradient)
        network.adam(self.rate() if rate is None else rate, self.parameters.max_gradient_norm, clear=clear)

    def shared(self) -> Arrays:
        state: Arrays = self.network.state() | {"step": np.asarray([self.step], dtype=np.int64)}
        for name, network in self.others.items():
            state |= {f"{name}:{key}": array for key, array in network.state().items()}
        return state | {_target(name): vector.cpu().numpy().copy() for name, vector in self.targets.items()}

    def own(self) -> Arrays:
        """Nothing, unless a subclass keeps something of each environment."""
        return {}

    def restore(self, shared: Arrays, own: Arrays) -> None:
        del own
        self.network.restore(shared)
        for name, network in self.others.items():
            prefix = f"{name}:"
            network.restore({key.removeprefix(prefix): a for key, a in shared.items() if key.startswith(prefix)})
        with torch.no_grad():
            for name, vector in self.targets.items():
                vector.copy_(torch.from_numpy(np.array(shared[_target(name)], dtype=np.float32)))
        self.step = int(shared["step"][0])


def _target(name: str) -> str:
    return f"target:{name}" if name else "target"
