"""A fragment: consecutive steps of one sampler's environments, taken with one version of the policy."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Bounds, Observations, VectorEnvironment
from learnloop_trainer.store.array_container import Arrays

LARGEST = 1e9
"""No number of an observation, an action or a reward is larger: its square must stay far from infinity."""


class RefusedFragment(Exception):
    """A fragment is not what the learner asked for. The text is one sentence."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Leading axes [steps, environments] of fragments and blocks."""

    observation: Observations  # [..., observations], as the environment says it
    successor: Observations  # [..., observations], the true next state
    action: NDArray[np.generic]  # as the algorithm keeps them
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    log_prob: NDArray[np.float32]  # of the action under the policy that took it; 0 where nobody asks
    returned: NDArray[np.float32]  # the return of the episode that ended in this step; 0 elsewhere

    def arrays(self) -> Arrays:
        """By their names."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Shape:
    """What a learner wants fragments to be.

    Attributes:
        steps: of each environment.
        observations: numbers of one.
        actions: how many there are to choose from; 0: they are numbers.
        numbers: of one action; 0: it is a choice, int64.
        bounds: of actions that begin with a choice, how many choices; 0 elsewhere.
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
        """For this environment's spaces."""
        bounds: Bounds | None = environment.bounds
        if bounds is None:
            return cls(steps, environment.observations, environment.actions, 0, 0, corrected)
        return cls(steps, environment.observations, 0, environment.actions, bounds.choices, corrected)

    def room(self, environments: int) -> Steps:
        """Zeros, to be filled."""
        lead = (self.steps, environments)
        plain = np.zeros(lead, dtype=np.float32)
        action = np.zeros((*lead, self.numbers), np.float32) if self.numbers else np.zeros(lead, np.int64)
        return Steps(
            observation=np.zeros((*lead, self.observations), dtype=np.float32),
            successor=np.zeros((*lead, self.observations), dtype=np.float32),
            action=action,
            reward=plain,
            terminated=np.zeros(lead, dtype=np.bool_),
            truncated=np.zeros(lead, dtype=np.bool_),
            log_prob=plain.copy(),
            returned=plain.copy(),
        )

    def most_bytes(self, environments: int) -> int:
        """Of a fragment's frame, with what names its arrays."""
        return 16_384 + sum(array.nbytes for array in self.room(environments).arrays().values())

    def checked(self, arrays: Mapping[str, NDArray[np.generic]], environments: int) -> Steps:
        """The steps that these arrays are.

        Raises:
            RefusedFragment: an array is missing, is one too many, has another type or shape, or holds what cannot be.
        """
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
                raise RefusedFragment(f"{name} holds what is neither true nor false")
            if array.dtype == np.float32 and not _bounded(array):
                raise RefusedFragment(
                    f"{name} holds a number that is not finite or larger than {LARGEST:.0e}; check the environment"
                )
        found = Steps(**arrays)  # type: ignore[arg-type]
        chosen: NDArray[Any] = found.action if not self.numbers else found.action[..., 0]
        choices = self.actions or self.choices
        if choices and bool(((chosen < 0) | (chosen >= choices) | (chosen != np.floor(chosen))).any()):
            raise RefusedFragment(f"action holds a choice that is no whole number from 0 to {choices - 1}")
        return found


def _bounded(array: NDArray[np.generic]) -> bool:
    numbers = np.asarray(array, dtype=np.float32)
    return not numbers.size or bool(np.abs(numbers).max() <= LARGEST)  # NaN compares as False
