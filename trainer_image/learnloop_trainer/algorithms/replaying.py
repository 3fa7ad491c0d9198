"""Learners that play, store transitions in rings and learn from batches of them.

Agents of a team share their parameters (Gupta, Egorov & Kochenderfer, 2017): an agent's observation ends with which
agent it is, so one network can play any of them and one exported policy serves them all, each with what it sees itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments.base import Observations, VectorEnvironment, agents, team_return
from learnloop_environments.randomness import Draws, Purpose, uniforms
from learnloop_trainer.algorithms.base import Arrays, Experience, Occasion, StatefulLearner
from learnloop_trainer.floating_point import require_finite, require_learned
from learnloop_trainer.neural.dense_networks import Network, forward_numpy
from learnloop_trainer.neural.schedules import explored
from learnloop_trainer.replay import Replay, Transitions

CHUNK = 32  # vector steps per call of `iterate`
Indices = NDArray[np.int64]


class ReplayLearner(StatefulLearner):
    """A learner with a replay buffer: one ring for each environment."""

    def __init__(
        self,
        parameters: Parameters,
        environment: VectorEnvironment,
        occasion: Occasion,
        network: Network,
        *,
        others: Mapping[str, Network] | None = None,
        targets: Mapping[str, torch.Tensor] | None = None,
        width: int | None = None,
        dimensions: int = 0,
        rewards: int = 1,
        steps: int = 1,
        discount: float = 1.0,
    ) -> None:
        """`width`: numbers in a stored observation, the environment's unless given; for the rest see Replay."""
        super().__init__(parameters, environment, occasion, network, others=others, targets=targets)
        self.length = max(1, parameters.buffer_size // occasion.environments)
        self.replay = Replay(
            environment.members,
            self.length,
            width or environment.observations,
            dimensions=dimensions,
            rewards=rewards,
            steps=steps,
            discount=discount,
            environments=occasion.environments,
        )

    def updates_due(self) -> int:
        """How many updates follow the vector step that ends now."""
        return self._due(self.step + self.occasion.environments) - self._due(self.step)

    def _due(self, step: int) -> int:
        return max(0, step - self.parameters.learning_starts) // self.parameters.steps_per_update

    def places(self, draws: NDArray[np.float64]) -> tuple[Indices, Indices]:
        """Environments and slots of a batch, for uniform draws [2, batch]."""
        members = (draws[0] * self.occasion.environments).astype(np.int64)
        return members, (draws[1] * self.replay.filled).astype(np.int64)

    def follow(self) -> None:
        """Copy the network to its target where the time has come."""
        if self.network.updates % self.parameters.target_update == 0:
            self.targets[""].copy_(self.network.vector)

    def shared(self) -> Arrays:
        ring = np.asarray([self.replay.position, self.replay.filled], dtype=np.int64)
        return super().shared() | {"ring": ring}

    def own(self) -> Arrays:
        return self.replay.state()

    def restore(self, shared: Arrays, own: Arrays) -> None:
        super().restore(shared, own)
        position, filled = (int(value) for value in shared["ring"])
        self.replay.restore(own, position, filled)
        if self.environment.state() is None:
            self.replay.cut()


class Team(ReplayLearner, ABC):
    """A team learner; a subclass says how to choose actions and how to learn from a batch of joint transitions."""

    def __init__(
        self,
        parameters: Parameters,
        environment: VectorEnvironment,
        occasion: Occasion,
        network: Network,
        *,
        others: Mapping[str, Network] | None = None,
    ) -> None:
        self.agents = agents(environment)
        numbers = environment.actions if environment.bounds is not None else 1
        targets = {name: one.vector.clone() for name, one in ({"": network} | dict(others or {})).items()}
        super().__init__(
            parameters,
            environment,
            occasion,
            network,
            others=others,
            targets=targets,
            width=self.agents * environment.observations,
            dimensions=self.agents * numbers,
            rewards=self.agents,
        )
        self._draws = Draws((2, parameters.batch_size), Purpose.REPLAY, occasion.seed)

    @abstractmethod
    def choose(self, observation: Observations, vector_step: int) -> NDArray[np.generic]:
        """Actions [n, agents] or, scaled to [-1, 1], [n, agents, dimensions]; `vector_step` numbers the occasion."""

    @abstractmethod
    def learn(self, batch: Transitions, count: int) -> None:
        """One update; `batch` is this rank's part of `count` joint transitions, agents one after another in a row."""

    @property
    def updates(self) -> int:
        return self.network.updates

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """CHUNK vector steps with the updates that are due between them."""
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
            for _ in range(self.updates_due()):
                batch = self.replay.pick(*self.places(self._draws.at(self.updates)), self.network.vector.device)
                self.learn(batch, self.parameters.batch_size)
            self.step += self.occasion.environments
        require_finite(self.step, observation=observation, reward=rewards)
        for network in (self.network, *self.others.values()):
            require_learned(self.step, network.vector.sum(), *self.replay.learned_from())
        return observation, [Experience(rewards, ended)]

    def seen(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows [n, agents * width] as [n, agents, width]."""
        return rows.view(len(rows), self.agents, -1)


class DiscreteTeam(Team):
    """A team whose agents act by one Q-network `q` that they share: the best action, or now and then any."""

    def choose(self, observation: Observations, vector_step: int) -> NDArray[np.int64]:
        parameters = self.parameters
        done = self.step / max(1.0, parameters.exploration_fraction * self.occasion.total_steps)
        rate = explored(parameters.epsilon_start, parameters.epsilon_end, done, warm=self.network.warm)
        explore, random = uniforms(
            Purpose.EXPLORE,
            self.occasion.seed,
            vector_step,
            np.arange(2)[:, None, None],
            np.asarray(self.environment.members)[None, :, None],
            np.arange(self.agents)[None, None, :],
        )
        rows = np.ascontiguousarray(observation.reshape(-1, observation.shape[-1]))
        values = forward_numpy(self.network.actor(), "q", "relu", rows).reshape(*observation.shape[:2], -1)
        chosen = np.where(explore < rate, (random * values.shape[2]).astype(np.int64), values.argmax(axis=2))
        return np.asarray(chosen, dtype=np.int64)
