"""Any PettingZoo parallel environment whose agents have equal spaces, many at a time.

Told apart by its interface, so that the trainer needs no PettingZoo. Each agent's observation, flattened, ends with
which agent it is. An agent that has left sees zeros and earns nothing; the episode ends when all have left. Slower than
a native team, and its inner state cannot be saved: after a restart its episodes begin anew.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.action_spaces import FIELD
from learnloop_environments.base import Observations, Step
from learnloop_environments.errors import ConfigError
from learnloop_environments.interfaces.foreign_seeds import begin, foreign_seeds
from learnloop_environments.interfaces.foreign_spaces import Doing, row, width
from learnloop_environments.randomness import Split


class TeamVector:
    """n copies of one parallel environment."""

    def __init__(self, name: str, split: Split, seed: int, members: range, entry: Callable[[], Any]) -> None:
        """Environments `members` of the run with this seed; raises ConfigError when the spaces do not fit."""
        self._name, self.members = name, members
        self._all = [entry() for _ in members]
        first = self._all[0]
        self._names = list(first.possible_agents)
        self.agents = len(self._names)
        seen = [first.observation_space(agent) for agent in self._names]
        done = [first.action_space(agent) for agent in self._names]
        if any(type(space) is not type(seen[0]) or space.shape != seen[0].shape for space in seen):
            raise ConfigError(FIELD, name, "has agents with different observations", "give all agents equal spaces")
        if any(type(space) is not type(done[0]) or space != done[0] for space in done):
            raise ConfigError(FIELD, name, "has agents with different actions", "give all agents equal spaces")
        self._seen = dict(zip(self._names, seen, strict=True))
        self._width = width(name, seen[0])
        self.observations = self._width + self.agents
        self._doing = Doing(name, done[0])
        self.bounds, self.actions = self._doing.actions.bounds, self._doing.actions.actions
        self._seeds = foreign_seeds(split, seed, members)

    def _look(self, observation: dict[Any, Any]) -> NDArray[np.float32]:
        rows = np.zeros((self.agents, self.observations), dtype=np.float32)
        rows[:, self._width :] = np.eye(self.agents)
        for own, agent in zip(rows, self._names, strict=True):
            if agent in observation:
                own[: self._width] = row(self._name, self._seen[agent], observation[agent])
        return rows

    def reset(self) -> Observations:
        """See VectorEnvironment.reset; raises ConfigError for an observation that has not its space's form."""

        def begun(seeds: list[int]) -> list[dict[Any, Any]]:
            return [one.reset(seed=seed)[0] for one, seed in zip(self._all, seeds, strict=True)]

        return np.stack([self._look(observation) for observation in begin(begun, self._seeds)])

    def step(self, actions: NDArray[Any]) -> Step:
        """See VectorEnvironment.step."""
        count = len(self._all)
        successor = np.empty((count, self.agents, self.observations), dtype=np.float32)
        reward = np.zeros((count, self.agents), dtype=np.float32)
        terminated, truncated = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        observation = successor
        for n, one in enumerate(self._all):
            chosen = {
                agent: self._doing.one(actions[n, k]) for k, agent in enumerate(self._names) if agent in one.agents
            }
            seen, earned, over, late, _ = one.step(chosen)
            successor[n] = self._look(seen)
            reward[n] = [earned.get(agent, 0.0) for agent in self._names]
            if not one.agents:
                terminated[n] = not any(late.values()) or all(over.values())
                truncated[n] = not terminated[n]
                observation = successor.copy() if observation is successor else observation
                observation[n] = self._look(one.reset()[0])
        return Step(observation, successor, reward, terminated, truncated)

    def state(self) -> None:
        """PettingZoo has no way to save an environment."""
        return

    def restore(self, state: dict[str, NDArray[np.generic]]) -> Observations:
        """There is nothing to restore: begin new episodes."""
        del state
        return self.reset()

    def close(self) -> None:
        """See VectorEnvironment.close."""
        for one in self._all:
            one.close()
