"""Protocol of an algorithm, and the traits that it registers for the rest of the trainer."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments.errors import ConfigError
from learnloop_environments.spaces import ActionType, Observations, VectorEnvironment
from learnloop_trainer import distributed, recordings, shielded_environment
from learnloop_trainer.neural import networks, observation_normalisation, schedules

Arrays = dict[str, NDArray[np.generic]]


def _no_recording() -> recordings.Recording:
    raise ConfigError("spec.data", "", "names no recorded experience", "set learningAgentRef or bc.recording")


def _no_memory() -> None:
    return None


@dataclass(frozen=True, slots=True)
class Occasion:
    """The run as an algorithm sees it: the same on all ranks but for the group's own rank."""

    seed: int
    total_steps: int
    environments: int  # over all ranks
    group: distributed.Group
    recording: Callable[[], recordings.Recording] = (
        _no_recording  # collective; of logged experience, where a run learns from it
    )
    memory: Callable[[], recordings.Recording | None] = (
        _no_memory  # collective; the same, where a run can do without it
    )


@dataclass(frozen=True, slots=True)
class Experience:
    """Some consecutive vector steps; axes [steps, environments]."""

    reward: NDArray[np.float32]
    ended: NDArray[np.bool_]
    losses: Mapping[str, float] = field(default_factory=dict)  # of the newest update, where the learner tells
    actions: NDArray[np.generic] | None = None  # that were taken, where the learner tells


class Learner(Protocol):
    """An algorithm with its state. All ranks call the same methods in the same order."""

    network: networks.Network  # what is exported
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
        network: networks.Network,
        *,
        others: Mapping[str, networks.Network] | None = None,
        targets: Collection[str] = (),
    ) -> None:
        """`network` is exported, `others` are not; `targets` names those that have one, '' the network."""
        self.parameters, self.environment, self.occasion, self.network = parameters, environment, occasion, network
        self.others = dict(others or {})
        self.targets = {name: {"": network, **self.others}[name].vector.clone() for name in targets}
        self.step = 0

    def rate(self, start: float | None = None) -> float:
        """The step size now; `start`: at the beginning of the run, learningRate unless given."""
        start = self.parameters.learning_rate if start is None else start
        return schedules.step_size(self.parameters, start, self.step / self.occasion.total_steps)

    def apply(self, network: networks.Network, rate: float | None = None, *, clear: bool = True) -> None:
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


Leaves = Mapping[str, torch.Tensor]
Outputs = Callable[[Any, Observations], networks.Floats]
QValue = Callable[[Any, Observations, NDArray[Any]], networks.Floats]
ALL_ACTIONS = frozenset(ActionType)


@dataclass(frozen=True, slots=True)
class Traits:
    """One algorithm.

    Attributes:
        name: as a TrainingJob writes it.
        learner: makes one; takes parameters, environment, occasion and device, and keeps to `base.Learner`.
        head: the perceptron that is exported.
        activation: of all perceptrons that are exported.
        actions: the types of action spaces it can learn.
        team: it trains the agents of a team; else a single agent.
        recorded: it learns from logged experience alone.
        meta_learned: what it learns is adapted to a task by inner steps: `nominal()` and `adapted_to(task)`.
        chooser: the perceptron that chooses what the head gets in addition to the observation.
        outputs: from leaves and observations [n, observations] to the head's outputs; None: the head alone.
        deviation: of a policy that learns how far its numbers may stray: the array that holds the logarithm of the
            standard deviation (None: the head puts it out with the mean), its least and its greatest value.
        q_value: the values [n], or of a team [n, agents], that a learner gives actions as the environment takes them;
            None where it judges states or nothing.
        preferences: the outputs [n * agents, actions] by which a learner chooses among discrete actions, from what it
            observes: a shield takes the best that is allowed. None where its actions are numbers alone, and where it
            takes no step while it learns.
        draws: its preferences are logits, which it draws from; else it takes the best.
    """

    name: str
    learner: Callable[..., Any]
    head: str
    activation: str
    actions: frozenset[ActionType]
    team: bool = False
    recorded: bool = False
    meta_learned: bool = False
    chooser: str | None = None
    outputs: Callable[[Leaves, torch.Tensor], torch.Tensor] | None = None
    deviation: tuple[str | None, float, float] | None = None
    q_value: QValue | None = None
    preferences: Outputs | None = None
    draws: bool = False

    @property
    def network(self) -> tuple[str, str]:
        """Two algorithms with the same one export policies that can go on from one another's weights."""
        return self.head, self.activation

    @property
    def perceptrons(self) -> list[str]:
        return [self.head] if self.chooser is None else [self.head, self.chooser]

    def act(self, leaves: Any, observation: torch.Tensor) -> torch.Tensor:
        """The outputs of the exported policy for observations [n, observations]."""
        if self.outputs is not None:
            return self.outputs(leaves, observation)
        return networks.forward(leaves, self.head, self.activation, observation)


_by_name: dict[str, Traits] = {}


def register(traits: Traits) -> Traits:
    """Makes an algorithm known to the trainer.

    Raises:
        ValueError: another one has that name.
    """
    if traits.name in _by_name:
        raise ValueError(f"two algorithms are named {traits.name}")
    _by_name[traits.name] = traits
    return traits


def forget(name: str) -> None:
    """Takes an algorithm back, for tests that register one."""
    del _by_name[name]


def registered() -> tuple[Traits, ...]:
    return tuple(_by_name[name] for name in sorted(_by_name))


def find(name: str) -> Traits | None:
    """The algorithm of that name; None where there is none."""
    return _by_name.get(name)


def traits_of(name: str) -> Traits:
    """The algorithm of that name; KeyError where there is none."""
    return _by_name[name]


def head_outputs(head: str, activation: str) -> Outputs:
    """The `preferences` of a learner whose head, or whose agents' head, has an output for each action."""

    def outputs(learner: Any, batch: Observations) -> networks.Floats:
        rows = observation_normalisation.normalised(learner.network.fixed, batch.reshape(-1, batch.shape[-1]))
        return networks.forward_numpy(learner.network.actor(), head, activation, np.ascontiguousarray(rows))

    return outputs


def register_q_learner(name: str, learner: Callable[..., Learner], activation: str, *, team: bool = False) -> None:
    """Registers a learner whose head "q", or whose agents' head, has a value for each action."""
    outputs = head_outputs("q", activation)

    def value(learner: Any, batch: Observations, taken: NDArray[Any]) -> networks.Floats:
        return picked(outputs(learner, batch), taken)

    actions = frozenset({ActionType.DISCRETE})
    register(Traits(name, learner, "q", activation, actions, team=team, q_value=value, preferences=outputs))


def picked(values: networks.Floats, taken: NDArray[Any]) -> networks.Floats:
    """Of values [rows, actions] those of the actions taken, in their shape."""
    return np.take_along_axis(values, taken.reshape(-1, 1), axis=1).reshape(taken.shape)


def unscaled(learner: Any, taken: NDArray[Any]) -> networks.Floats:
    """Numbers from the environment's bounds to [-1, 1], in their shape."""
    bounds = learner.environment.bounds
    assert bounds is not None  # those who ask have continuous actions
    return np.asarray(bounds.unscale(taken.reshape(-1, taken.shape[-1])).reshape(taken.shape))


def advise(environment: VectorEnvironment, learner: Learner, traits: Traits, seed: int) -> None:
    """Give a shielded environment's record the learner's values, and the shield its preferences.

    Without preferences a shield can only take the fallback, so the learner would learn from other actions than the
    exported graph takes.
    """
    if not isinstance(environment, shielded_environment.Shielded):
        return
    if traits.q_value is not None:
        environment.worth = partial(traits.q_value, learner)
    if traits.preferences is not None and environment.bounds is None:
        environment.preferences = shielded_environment.Preferences(
            partial(traits.preferences, learner), traits.draws, seed
        )
