"""Act as each algorithm's own learner would, and play fragments."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_environments.base import Bounds, Observations, VectorEnvironment
from learnloop_environments.randomness import Purpose, uniforms
from learnloop_trainer.algorithms import action_heads, dqn, ppo, sac
from learnloop_trainer.neural.networks import Floats, forward
from learnloop_trainer.neural.observation_normalisation import normalised
from learnloop_trainer.sampling.intake import SamplerPolicy, Shape, Steps
from learnloop_trainer.training_order import Order

WARM = "warm"
"""A policy with an array of this name began from a trained one: less is explored."""


class Player:
    """Acts in the n environments of a sampler."""

    def __init__(self, order: Order, environment: VectorEnvironment) -> None:
        self.order, self.environment = order, environment
        self.members = np.asarray(environment.members)

    def act(self, policy: Any, step: int, clock: int, observation: Observations) -> tuple[NDArray[Any], NDArray[Any]]:
        """Actions [n] as the algorithm keeps them and as the environment takes them.

        `step`: of the learner; `clock`: of these environments.
        """
        raise NotImplementedError

    def log_prob(self, policy: Any, observation: Observations, action: NDArray[Any]) -> Floats:
        """Of actions [n] for observations [n, observations] under the policy, where the learner corrects by it."""
        raise NotImplementedError


class PpoPlayer(Player):
    """Samples from the policy's distribution."""

    def act(self, policy: Any, step: int, clock: int, observation: Observations) -> tuple[NDArray[Any], NDArray[Any]]:
        head = action_heads.fitting(self.environment)
        noise = head.noise(self.order.spec.seed, np.full((1, 1, 1), clock), self.members[None, :, None])[0]
        taken = ppo.act(policy, head, normalised(policy, observation), noise)
        return taken, head.executed(taken)

    def log_prob(self, policy: Any, observation: Observations, action: NDArray[Any]) -> Floats:
        leaves = {name: torch.from_numpy(array) for name, array in policy.items()}
        with torch.inference_mode():
            outputs = forward(leaves, "policy", ppo.ACTIVATION, torch.from_numpy(normalised(policy, observation)))
            head = action_heads.fitting(self.environment)
            return np.asarray(head.log_prob(leaves, outputs, torch.from_numpy(action)).numpy())


class DqnPlayer(Player):
    """Takes the best action, and now and then any other."""

    def act(self, policy: Any, step: int, clock: int, observation: Observations) -> tuple[NDArray[Any], NDArray[Any]]:
        spec = self.order.spec
        draws = uniforms(Purpose.EXPLORE, spec.seed, clock, np.arange(2)[:, None], self.members[None, :])
        rate = dqn.epsilon(self.order.parameters, step, spec.total_steps, warm=WARM in policy)
        action = dqn.act(policy, observation, draws[0] < rate, (draws[1] * self.environment.actions).astype(np.int64))
        return action, action


class SacPlayer(Player):
    """Samples from the policy's distribution; draws uniformly until learning starts."""

    def act(self, policy: Any, step: int, clock: int, observation: Observations) -> tuple[NDArray[Any], NDArray[Any]]:
        bounds: Bounds | None = self.environment.bounds
        assert bounds is not None  # session.begin refuses others, with field and fix
        numbers = np.arange(self.environment.actions)[None, None, :]
        which = np.arange(2)[:, None, None], self.members[None, :, None], numbers
        first, second = uniforms(Purpose.ACTION, self.order.spec.seed, clock, *which)
        normal = np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * math.pi * second)  # Box & Muller (1958)
        random = step < self.order.parameters.learning_starts and WARM not in policy
        taken = (
            (2.0 * first - 1.0).astype(np.float32)
            if random
            else sac.act(policy, observation, normal.astype(np.float32))
        )
        return taken, bounds.scale(taken)


PLAYERS: dict[str, type[Player]] = {"ppo": PpoPlayer, "dqn": DqnPlayer, "sac": SacPlayer}
"""By the name of the algorithm: those of `learnloop_api.kinds.training.algorithms.SAMPLED`."""


class Table:
    """One sampler's environments under way."""

    def __init__(self, environment: VectorEnvironment, player: Player, shape: Shape) -> None:
        self._environment, self._player, self._shape = environment, player, shape
        self._seen = environment.reset()
        self._running = np.zeros(len(environment.members))
        self._clock = 0

    def play(self, policy: SamplerPolicy) -> Steps:
        steps = self._shape.room(len(self._environment.members))
        for t in range(self._shape.steps):
            steps.observation[t] = self._seen
            taken, executed = self._player.act(policy.arrays, policy.step, self._clock, self._seen)
            step = self._environment.step(executed)
            steps.action[t], steps.successor[t], steps.reward[t] = taken, step.successor, step.reward
            steps.terminated[t], steps.truncated[t] = step.terminated, step.truncated
            self._running += step.reward
            ended = step.terminated | step.truncated
            steps.returned[t] = np.where(ended, self._running, 0.0)
            self._running[ended] = 0.0
            self._seen, self._clock = step.observation, self._clock + 1
        if self._shape.corrected:
            lead = steps.reward.size
            observation = steps.observation.reshape(lead, -1)
            action = steps.action.reshape(lead, *steps.action.shape[2:])
            steps.log_prob[:] = self._player.log_prob(policy.arrays, observation, action).reshape(steps.reward.shape)
        return steps
