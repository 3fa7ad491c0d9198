"""Any PettingZoo parallel environment whose agents have equal spaces, many at a time.

Recognised by its interface, so that the trainer needs no PettingZoo. Each agent's observation, flattened, ends with
the agent's number. An agent has left when it is terminated, truncated or not listed any more: it sees zeros and earns
nothing. The episode ends when all have left. Slower than a native team, and its inner state cannot be saved: a restart
begins new episodes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_environments.action_spaces import FIELD
from learnloop_environments.base import Observations, Step
from learnloop_environments.errors import ConfigError
from learnloop_environments.interfaces.foreign_seeds import begin, foreign_seeds
from learnloop_environments.interfaces.foreign_spaces import ActionDecoder, layout, row, width
from learnloop_environments.interfaces.gymnasium_vector import close
from learnloop_environments.randomness import Split


class TeamVector:
    """n copies of one parallel environment."""

    def __init__(self, name: str, split: Split, seed: int, members: range, entry: Callable[[], Any]) -> None:
        """Environments `members` of the run with this seed; raises ConfigError when the spaces do not fit."""
        self.name, self.members = name, members
        self._all = [entry() for _ in members]
        first = self._all[0]
        self._names = list(first.possible_agents)
        self.agents = len(self._names)
        seen = [first.observation_space(agent) for agent in self._names]
        done = [first.action_space(agent) for agent in self._names]
        if any(layout(space) != layout(seen[0]) for space in seen):
            raise ConfigError(FIELD, name, "has agents with different observations", "give all agents equal spaces")
        if any(space != done[0] for space in done):
            raise ConfigError(FIELD, name, "has agents with different actions", "give all agents equal spaces")
        self._seen = dict(zip(self._names, seen, strict=True))
        self._width = width(name, seen[0])
        self.observations = self._width + self.agents
        self._decoder = ActionDecoder(name, done[0])
        self.bounds, self.actions = self._decoder.actions.bounds, self._decoder.actions.actions
        self._seeds = foreign_seeds(split, seed, members)
        self._playing = [set(self._names) for _ in members]

    def _look(self, n: int, observation: dict[Any, Any]) -> NDArray[np.float32]:
        rows = np.zeros((self.agents, self.observations), dtype=np.float32)
        rows[:, self._width :] = np.eye(self.agents)
        for own, agent in zip(rows, self._names, strict=True):
            if agent in observation and agent in self._playing[n]:
                own[: self._width] = row(self.name, self._seen[agent], observation[agent])
        return rows

    def _begin(self, n: int, seed: int | None = None) -> NDArray[np.float32]:
        observation, _ = self._all[n].reset(seed=seed)
        self._playing[n] = set(self._all[n].agents)
        return self._look(n, observation)

    def reset(self) -> Observations:
        """See VectorEnvironment.reset; raises ConfigError for an observation that has not its space's form."""
        return np.stack(begin(lambda seeds: [self._begin(n, seed) for n, seed in enumerate(seeds)], self._seeds))

    def step(self, actions: NDArray[Any]) -> Step:
        """See VectorEnvironment.step."""
        count = len(self._all)
        successor = np.empty((count, self.agents, self.observations), dtype=np.float32)
        reward = np.zeros((count, self.agents), dtype=np.float32)
        terminated, truncated = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
        observation = successor
        for n, one in enumerate(self._all):
            chosen = {
                agent: self._decoder.decode(actions[n, k]) for k, agent in enumerate(self._names) if agent in one.agents
            }
            seen, earned, over, late, _ = one.step(chosen)
            successor[n] = self._look(n, seen)
            reward[n] = [earned.get(agent, 0.0) if agent in self._playing[n] else 0.0 for agent in self._names]
            left = {agent for agent in self._playing[n] if over.get(agent) or late.get(agent)}
            self._playing[n] = (self._playing[n] - left) & set(one.agents)
            if not self._playing[n]:
                terminated[n] = not any(late.values()) or all(over.values())
                truncated[n] = not terminated[n]
                observation = successor.copy() if observation is successor else observation
                observation[n] = self._begin(n)
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
            close(one)
