"""What the rest of the trainer has to know of an algorithm, which declares it in its own file and registers it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments.action_spaces import ActionType
from learnloop_environments.base import Observations
from learnloop_trainer.neural.dense_networks import Floats, forward, forward_numpy
from learnloop_trainer.neural.observation_normalisation import normalised

Leaves = Mapping[str, torch.Tensor]
Outputs = Callable[[Any, Observations], Floats]
QValue = Callable[[Any, Observations, NDArray[Any]], Floats]
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
        chooser: the perceptron that chooses what the head is told beside the observation.
        outputs: from leaves and observations [n, observations] to the head's outputs; None: the head alone.
        deviation: of a policy that learns how far its numbers may stray: the array that holds the logarithm of the
            standard deviation (None: the head says it beside the mean), its least and its greatest value.
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
        return forward(leaves, self.head, self.activation, observation)


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


def of_parameters(parameters: Parameters) -> Traits:
    """The algorithm these hyperparameters belong to.

    Raises:
        KeyError: none has that name.
    """
    return _by_name[parameters.algorithm.name]


def head_outputs(head: str, activation: str) -> Outputs:
    """The `preferences` of a learner whose head, or whose agents' head, has an output for each action."""

    def outputs(learner: Any, seen: Observations) -> Floats:
        rows = normalised(learner.network.fixed, seen.reshape(-1, seen.shape[-1]))
        return forward_numpy(learner.network.actor(), head, activation, np.ascontiguousarray(rows))

    return outputs


def head_values(head: str, activation: str) -> QValue:
    """The `q_value` of a learner whose head, or whose agents' head, has a value for each action."""
    values = head_outputs(head, activation)
    return lambda learner, seen, done: picked(values(learner, seen), done)


def picked(values: Floats, done: NDArray[Any]) -> Floats:
    """Of values [rows, actions] those of the actions done, in their shape."""
    return np.take_along_axis(values, done.reshape(-1, 1), axis=1).reshape(done.shape)


def unscaled(learner: Any, done: NDArray[Any]) -> Floats:
    """Numbers from the environment's bounds to [-1, 1], in their shape."""
    bounds = learner.environment.bounds
    assert bounds is not None  # those who ask have continuous actions
    return np.asarray(bounds.unscale(done.reshape(-1, done.shape[-1])).reshape(done.shape))
