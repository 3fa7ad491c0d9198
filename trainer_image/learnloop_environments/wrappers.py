"""Wrappers of environments."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.errors import ConfigError
from learnloop_environments.spaces import Bounds, Imposable, Observations, Step, Team, VectorEnvironment, team_return

W = TypeVar("W", bound="Wrapper")


class Wrapper:
    """Passes everything on; a subclass changes what it is for. A team's wrapper has `agents` too, others do not."""

    agents: int

    def __init__(self, inner: VectorEnvironment) -> None:
        self.inner = inner
        self.observations, self.actions, self.members = inner.observations, inner.actions, inner.members
        if isinstance(inner, Team):
            self.agents = inner.agents

    @property
    def bounds(self) -> Bounds | None:
        return self.inner.bounds

    def reset(self) -> Observations:
        return self.inner.reset()

    def impose(self, parameters: Mapping[str, NDArray[np.float64]]) -> Observations:
        """Raises TypeError where what is within has no physics to choose."""
        if not isinstance(self.inner, Imposable):
            raise TypeError(f"{type(self.inner).__name__} has no parameters that could be imposed")
        return self.inner.impose(parameters)

    def step(self, actions: NDArray[Any]) -> Step:
        return self.inner.step(actions)

    def state(self) -> dict[str, NDArray[np.generic]] | None:
        return self.inner.state()

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        return self.inner.restore(state)

    def close(self) -> None:
        self.inner.close()


class Seeing(Wrapper):
    """Has the observation before the next step."""

    def __init__(self, inner: VectorEnvironment) -> None:
        super().__init__(inner)
        self._observation = inner.reset()

    def reset(self) -> Observations:
        self._observation = super().reset()
        return self._observation

    def impose(self, parameters: Mapping[str, NDArray[np.float64]]) -> Observations:
        self._observation = super().impose(parameters)
        return self._observation

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        self._observation = super().restore(state)
        return self._observation


def innermost(environment: VectorEnvironment) -> Any:
    while isinstance(environment, Wrapper):
        environment = environment.inner
    return environment


def outermost(environment: VectorEnvironment, kind: type[W]) -> W | None:
    """The first wrapper of this kind, from the outside; None where there is none."""
    while not isinstance(environment, kind):
        if not isinstance(environment, Wrapper):
            return None
        environment = environment.inner
    return environment


class Counted(Wrapper):
    """Counts episodes, successes and returns between two looks; returns as they are before any shaping."""

    def __init__(self, inner: VectorEnvironment) -> None:
        super().__init__(inner)
        self._episodes = self._successes = 0
        self._total, self._running = 0.0, np.zeros(len(inner.members))

    def step(self, actions: NDArray[Any]) -> Step:
        step = self.inner.step(actions)
        ended = step.terminated | step.truncated
        self._running += team_return(step.reward)
        if ended.any():
            self._episodes += int(ended.sum())
            self._total += float(self._running[ended].sum())
            self._running[ended] = 0.0
            if step.success is not None:
                self._successes += int((step.success & ended).sum())
        return step

    def impose(self, parameters: Mapping[str, NDArray[np.float64]]) -> Observations:
        self._running[:] = 0.0
        return super().impose(parameters)

    def take(self) -> tuple[int, int, float]:
        """Episodes, successes and the sum of returns since the last call."""
        counts = self._episodes, self._successes, self._total
        self._episodes = self._successes = 0
        self._total = 0.0
        return counts

    def state(self) -> dict[str, NDArray[np.generic]] | None:
        inner = self.inner.state()
        return None if inner is None else {**inner, "counted.running": self._running.copy()}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        self._running = np.array(state["counted.running"], dtype=np.float64)
        return self.inner.restore({name: array for name, array in state.items() if name != "counted.running"})


class Shaped(Seeing):
    """Adds rewards that speed learning up.

    Potential-based (Ng, Harada & Russell, 1999, theorem 1): F = discount potential(s') - potential(s), with potential 0
    where an episode terminates. Along any episode the discounted sum of F is -potential(s_0), whatever is done in it,
    and so no ranking of policies changes. Coordination: `bonus` times the cosine of each agent's action and the
    direction of the best joint action, as the specification has it.
    """

    def __init__(self, inner: VectorEnvironment, discount: float, *, potential: bool, bonus: float) -> None:
        """Raises ConfigError when the environment has no potential, or knows no best joint action."""
        super().__init__(inner)
        self._world, self._discount = innermost(inner), discount
        self._potential, self._bonus = potential, bonus
        name = type(self._world).__name__
        if potential and not hasattr(self._world, "potential"):
            raise ConfigError("spec.shaping.potential", name, "has no potential", "leave it out for this environment")
        if bonus and not hasattr(self._world, "optimal"):
            problem = "knows no best joint action"
            raise ConfigError("spec.shaping.coordinationBonus", name, problem, "leave it out for this environment")

    def step(self, actions: NDArray[Any]) -> Step:
        aligned = self._alignment(actions) if self._bonus else None
        step = self.inner.step(actions)
        reward = step.reward.astype(np.float64)
        if self._potential:
            after = self._world.potential(step.successor) * ~step.terminated
            reward = reward + (self._discount * after - self._world.potential(self._observation))
        if aligned is not None:
            reward = reward + self._bonus * aligned
        self._observation = step.observation
        return replace(step, reward=reward.astype(np.float32))

    def _alignment(self, actions: NDArray[Any]) -> NDArray[np.float64]:
        """Cosine of every agent's direction and the best one [n, agents]; 0 for one who stands still."""
        taken, best = self._world.direction(actions), self._world.optimal()
        length = np.linalg.norm(taken, axis=2) * np.linalg.norm(best, axis=2)
        return np.asarray((taken * best).sum(axis=2) / np.maximum(length, 1e-9))
