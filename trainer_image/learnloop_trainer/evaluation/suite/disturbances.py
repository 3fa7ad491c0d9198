"""Environments that are not as they were: blurred observations, and actions that arrive a step late."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.base import Observations, Step, VectorEnvironment
from learnloop_environments.randomness import Purpose, generator
from learnloop_environments.wrappers import Wrapper


class Noisy(Wrapper):
    """Adds normal noise to what is seen; the dynamics, the shield and the rewards stay exact."""

    def __init__(self, inner: VectorEnvironment, deviation: NDArray[np.floating], seed: int) -> None:
        """`deviation` [observations], in the unit of each observation."""
        super().__init__(inner)
        self._deviation, self._random = deviation.astype(np.float32), generator(Purpose.NOISE, seed, 1)

    def _blurred(self, observation: Observations) -> Observations:
        noise = self._random.standard_normal(observation.shape, dtype=np.float32)
        return observation + self._deviation * noise

    def reset(self) -> Observations:
        """See VectorEnvironment.reset."""
        return self._blurred(self.inner.reset())

    def step(self, actions: NDArray[Any]) -> Step:
        """See VectorEnvironment.step."""
        step = self.inner.step(actions)
        return replace(step, observation=self._blurred(step.observation), successor=self._blurred(step.successor))


class Sticky(Wrapper):
    """Now and then the previous action once more (Machado et al., 2018, arXiv 1709.06009): for any environment."""

    def __init__(self, inner: VectorEnvironment, share: float, seed: int) -> None:
        """`share` of steps in which the action before is executed instead."""
        super().__init__(inner)
        self._share, self._random = share, generator(Purpose.NOISE, seed, 2)
        self._before: NDArray[Any] | None = None
        self._going = np.ones(len(inner.members), dtype=np.bool_)

    def reset(self) -> Observations:
        """See VectorEnvironment.reset."""
        self._before = None
        return self.inner.reset()

    def step(self, actions: NDArray[Any]) -> Step:
        """See VectorEnvironment.step: an episode's first action is never replaced."""
        executed = actions
        draws = self._random.random(len(actions))
        if self._before is not None:
            stuck = draws < self._share
            executed = actions.copy()
            executed[stuck & self._going] = self._before[stuck & self._going]
        step = self.inner.step(executed)
        self._before, self._going = executed, ~(step.terminated | step.truncated)
        return step
