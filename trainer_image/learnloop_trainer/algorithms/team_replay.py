"""What the replaying team algorithms share: acting, storing joint transitions, and when an update is due.

Agents share their parameters (Gupta, Egorov & Kochenderfer, 2017): an agent's observation ends with which agent it is,
so one network can play any of them and one exported policy serves them all, each with what it sees itself.
"""

from abc import ABC, abstractmethod

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments.base import Observations, VectorEnvironment, agents, team_return
from learnloop_environments.randomness import Draws, Purpose
from learnloop_trainer.algorithms.base import Arrays, Experience, Occasion
from learnloop_trainer.floating_point import require_finite, require_learned
from learnloop_trainer.neural.dense_networks import Network
from learnloop_trainer.neural.schedules import step_size
from learnloop_trainer.replay import Replay, Transitions

CHUNK = 32  # vector steps per call of `iterate`


class Team(ABC):
    """A team learner; a subclass says how to choose actions and how to learn from a batch of joint transitions."""

    network: Network

    def __init__(
        self, parameters: Parameters, environment: VectorEnvironment, occasion: Occasion, device: torch.device
    ) -> None:
        """At step 0 with an empty buffer."""
        self.occasion, self.environment, self.device = occasion, environment, device
        self._common = parameters
        self.agents = agents(environment)
        length = max(1, parameters.buffer_size // occasion.environments)
        numbers = environment.actions if environment.bounds is not None else 1
        self.replay = Replay(
            environment.members,
            length,
            self.agents * environment.observations,
            dimensions=self.agents * numbers,
            rewards=self.agents,
            environments=occasion.environments,
        )
        self._draws = Draws((2, parameters.batch_size), Purpose.REPLAY, occasion.seed)
        self.step = 0

    @abstractmethod
    def choose(self, observation: Observations, vector_step: int) -> NDArray[np.generic]:
        """Actions [n, agents] or, scaled to [-1, 1], [n, agents, dimensions]; `vector_step` numbers the occasion."""

    @abstractmethod
    def learn(self, batch: Transitions, count: int) -> None:
        """One update; `batch` is this rank's part of `count` joint transitions, agents one after another in a row."""

    @abstractmethod
    def networks(self) -> dict[str, Network]:
        """All networks by name; the exported one has the name ''."""

    @abstractmethod
    def targets(self) -> dict[str, torch.Tensor]:
        """Flat parameters of the target networks by name."""

    @property
    def updates(self) -> int:
        """How many batches were learned from."""
        return self.network.updates

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """See Learner.iterate: CHUNK vector steps with the updates that are due between them."""
        environment, bounds = self.environment, self.environment.bounds
        rewards = np.empty((CHUNK, len(environment.members)), dtype=np.float32)
        ended = np.empty(rewards.shape, dtype=np.bool_)
        for t in range(CHUNK):
            action = self.choose(observation, self.step // self.occasion.environments)
            played = action if bounds is None else bounds.scale(np.asarray(action, dtype=np.float32))
            step = environment.step(played)
            self.replay.add(observation, action, step)
            rewards[t], ended[t] = team_return(step.reward), step.terminated | step.truncated
            observation = step.observation
            self._learn()
            self.step += self.occasion.environments
        require_finite(self.step, observation=observation, reward=rewards)
        for network in self.networks().values():
            require_learned(self.step, network.vector.sum(), *self.replay.learned_from())
        return observation, [Experience(rewards, ended)]

    def _learn(self) -> None:
        size, before = self._common.batch_size, self._due(self.step)
        for _ in range(self._due(self.step + self.occasion.environments) - before):
            draws = self._draws.at(self.updates)
            members = (draws[0] * self.occasion.environments).astype(np.int64)
            slots = (draws[1] * self.replay.filled).astype(np.int64)
            self.learn(self.replay.pick(members, slots, self.device), size)

    def _due(self, step: int) -> int:
        return max(0, step - self._common.learning_starts) // self._common.steps_per_update

    def rate(self, start: float) -> float:
        """The step size now of what began with `start`."""
        return step_size(self._common, start, self.step / self.occasion.total_steps)

    def seen(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [n, agents * width] as [n, agents, width]."""
        return rows.view(len(rows), self.agents, -1)

    def apply(self, network: Network, rate: float) -> None:
        """Add the ranks' gradients up and take one step of Adam."""
        self.occasion.group.add_up(network.gradient)
        network.adam(rate, self._common.max_gradient_norm)

    def shared(self) -> Arrays:
        """See Learner.shared."""
        state: Arrays = {"counters": np.asarray([self.step, self.replay.position, self.replay.filled], dtype=np.int64)}
        for name, network in self.networks().items():
            state |= {f"{name}:{key}": array for key, array in network.state().items()}
        return state | {f"target:{name}": vector.cpu().numpy().copy() for name, vector in self.targets().items()}

    def own(self) -> Arrays:
        """See Learner.own: the replay rings."""
        return self.replay.state()

    def restore(self, shared: Arrays, own: Arrays) -> None:
        """See Learner.restore."""
        for name, network in self.networks().items():
            prefix = f"{name}:"
            network.restore({key.removeprefix(prefix): a for key, a in shared.items() if key.startswith(prefix)})
        with torch.no_grad():
            for name, vector in self.targets().items():
                vector.copy_(torch.from_numpy(np.array(shared[f"target:{name}"], dtype=np.float32)))
        self.step, position, filled = (int(value) for value in shared["counters"])
        self.replay.restore(own, position, filled)
        if self.environment.state() is None:
            self.replay.cut()
