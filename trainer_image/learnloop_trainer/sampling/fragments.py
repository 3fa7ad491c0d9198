"""Fragments: consecutive steps of one sampler's environments, by one version of the policy."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations, VectorEnvironment
from learnloop_trainer.store.run_store import Arrays

LARGEST = 1e9
"""The largest number of an observation, an action or a reward: its square must stay far from infinity."""


class RefusedFragment(Exception):
    """A message is not one that the learner asked for. The text is one sentence."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Leading axes [steps, environments] of fragments and blocks."""

    observation: Observations  # [..., observations], as the environment gives it
    successor: Observations  # [..., observations], the true next state
    action: NDArray[np.generic]  # as the algorithm keeps them
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    log_prob: NDArray[np.float32]  # of the action under the policy that took it; 0 where no correction needs it
    returned: NDArray[np.float32]  # the return of the episode that ended in this step; 0 elsewhere

    def arrays(self) -> Arrays:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of a learner's fragments.

    Attributes:
        steps: of each environment.
        observations: numbers of one.
        actions: how many there are to choose from; 0: they are numbers.
        numbers: of one action; 0: it is a choice, int64.
        choices: of actions that begin with a choice, how many; 0 elsewhere.
        corrected: log-probabilities are needed.
    """

    steps: int
    observations: int
    actions: int
    numbers: int
    choices: int
    corrected: bool

    @classmethod
    def of(cls, environment: VectorEnvironment, steps: int, *, corrected: bool) -> "Shape":
        bounds = environment.bounds
        if bounds is None:
            return cls(steps, environment.observations, environment.actions, 0, 0, corrected)
        return cls(steps, environment.observations, 0, environment.actions, bounds.choices, corrected)

    def room(self, environments: int) -> Steps:
        lead = (self.steps, environments)
        reward, log_prob, returned = np.zeros((3, *lead), dtype=np.float32)
        observation, successor = np.zeros((2, *lead, self.observations), dtype=np.float32)
        terminated, truncated = np.zeros((2, *lead), dtype=np.bool_)
        action = np.zeros((*lead, self.numbers), np.float32) if self.numbers else np.zeros(lead, np.int64)
        return Steps(observation, successor, action, reward, terminated, truncated, log_prob, returned)

    def most_bytes(self, environments: int) -> int:
        """Of a fragment's message, with the names of its arrays and a sampler's identity."""
        return 16_384 + sum(array.nbytes for array in self.room(environments).arrays().values())

    def checked(self, arrays: Mapping[str, NDArray[np.generic]], environments: int) -> Steps:
        """The steps in these arrays; raises RefusedFragment where names, types, shapes or values are wrong."""
        wanted = self.room(environments).arrays()
        if set(arrays) != set(wanted):
            odd = sorted(set(arrays) ^ set(wanted))
            raise RefusedFragment(f"arrays {', '.join(odd)[:200]} are missing or not asked for")
        for name, model in wanted.items():
            array = arrays[name]
            if array.dtype != model.dtype or array.shape != model.shape:
                raise RefusedFragment(
                    f"{name} is {array.dtype} {list(array.shape)}, the learner needs {model.dtype} {list(model.shape)}"
                )
            if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
                raise RefusedFragment(f"{name} has a value that is neither true nor false")
            if array.dtype == np.float32 and not bool((np.abs(array) <= LARGEST).all()):  # NaN compares as False
                raise RefusedFragment(
                    f"{name} has a number that is not finite or larger than {LARGEST:.0e}; check the environment"
                )
        steps = Steps(**arrays)  # type: ignore[arg-type]
        chosen: NDArray[Any] = steps.action if not self.numbers else steps.action[..., 0]
        choices = self.actions or self.choices
        if choices and bool(((chosen < 0) | (chosen >= choices) | (chosen != np.floor(chosen))).any()):
            raise RefusedFragment(f"action has a choice that is not a whole number from 0 to {choices - 1}")
        return steps
