"""How samplers act: for each algorithm what it does with an observation, as its own learner would."""

import math
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_environments.base import Bounds, Observations, VectorEnvironment
from learnloop_environments.randomness import Purpose, uniforms
from learnloop_trainer.algorithms import action_heads, dqn, ppo, sac
from learnloop_trainer.neural.dense_networks import Floats, forward
from learnloop_trainer.neural.observation_normalisation import normalised
from learnloop_trainer.sampling.fragment import Shape, Steps
from learnloop_trainer.sampling.intake import SamplerPolicy
from learnloop_trainer.training_order import Order

WARM = "warm"
"""An array of this name among a policy's says that training began from a trained one: less is explored."""


class Player(Protocol):
    """Acts in n environments."""

    def act(self, policy: Any, step: int, clock: int, seen: Observations) -> tuple[NDArray[Any], NDArray[Any]]:
        """Actions [n] as the algorithm keeps them and as the environment takes them.

        `step`: that the learner had come to; `clock`: of these environments' own steps.
        """

    def log_prob(self, policy: Any, seen: Observations, action: NDArray[Any]) -> Floats:
        """Of actions [n] for observations [n, observations] under the policy, [n]; zeros where nobody asks."""


class PpoPlayer:
    """Samples from the policy's distribution."""

    def __init__(self, order: Order, environment: VectorEnvironment) -> None:
        """For these environments."""
        self._head, self._seed = action_heads.fitting(environment), order.spec.seed
        self._members = np.asarray(environment.members)

    def act(self, policy: Any, step: int, clock: int, seen: Observations) -> tuple[NDArray[Any], NDArray[Any]]:
        """See Player."""
        del step
        noise = self._head.noise(self._seed, np.full((1, 1, 1), clock), self._members[None, :, None])[0]
        taken = ppo.act(policy, self._head, normalised(policy, seen), noise)
        return taken, self._head.executed(taken)

    def log_prob(self, policy: Any, seen: Observations, action: NDArray[Any]) -> Floats:
        """See Player."""
        leaves = {name: torch.from_numpy(array) for name, array in policy.items()}
        with torch.inference_mode():
            outputs = forward(leaves, "policy", ppo.ACTIVATION, torch.from_numpy(normalised(policy, seen)))
            return np.asarray(self._head.log_prob(leaves, outputs, torch.from_numpy(action)).numpy())


class DqnPlayer:
    """Takes the best action, and now and then any other."""

    def __init__(self, order: Order, environment: VectorEnvironment) -> None:
        """For these environments."""
        self._parameters, self._spec, self._environment = order.parameters, order.spec, environment

    def act(self, policy: Any, step: int, clock: int, seen: Observations) -> tuple[NDArray[Any], NDArray[Any]]:
        """See Player."""
        members = np.asarray(self._environment.members)
        draws = uniforms(Purpose.EXPLORE, self._spec.seed, clock, np.arange(2)[:, None], members[None, :])
        rate = dqn.epsilon(self._parameters, step, self._spec.total_steps, warm=WARM in policy)
        action = dqn.act(policy, seen, draws[0] < rate, (draws[1] * self._environment.actions).astype(np.int64))
        return action, action

    def log_prob(self, policy: Any, seen: Observations, action: NDArray[Any]) -> Floats:
        """See Player: replay asks for none."""
        del policy, seen
        return np.zeros(len(action), dtype=np.float32)


class SacPlayer:
    """Samples from the policy's distribution; draws uniformly until learning starts."""

    def __init__(self, order: Order, environment: VectorEnvironment) -> None:
        """For these environments."""
        assert environment.bounds is not None  # session.begin refuses others, with field and fix
        self._starts, self._seed = order.parameters.learning_starts, order.spec.seed
        self._bounds: Bounds = environment.bounds
        self._members, self._numbers = np.asarray(environment.members), environment.actions

    def act(self, policy: Any, step: int, clock: int, seen: Observations) -> tuple[NDArray[Any], NDArray[Any]]:
        """See Player."""
        which = np.arange(2)[:, None, None], self._members[None, :, None], np.arange(self._numbers)[None, None, :]
        first, second = uniforms(Purpose.ACTION, self._seed, clock, *which)
        normal = np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * math.pi * second)  # Box & Muller (1958)
        random = step < self._starts and WARM not in policy
        taken = (2.0 * first - 1.0).astype(np.float32) if random else sac.act(policy, seen, normal.astype(np.float32))
        return taken, self._bounds.scale(taken)

    def log_prob(self, policy: Any, seen: Observations, action: NDArray[Any]) -> Floats:
        """See Player: replay asks for none."""
        del policy, seen
        return np.zeros(len(action), dtype=np.float32)


PLAYERS: dict[str, type[PpoPlayer] | type[DqnPlayer] | type[SacPlayer]] = {
    "ppo": PpoPlayer,
    "dqn": DqnPlayer,
    "sac": SacPlayer,
}
"""By the name of the algorithm: those of `learnloop_api.kinds.training.algorithms.SAMPLED`."""


class Table:
    """One sampler's environments under way."""

    def __init__(self, environment: VectorEnvironment, player: Player, shape: Shape) -> None:
        """Begins the first episodes."""
        self._environment, self._player, self._shape = environment, player, shape
        self._seen = environment.reset()
        self._running = np.zeros(len(environment.members))
        self._clock = 0

    def play(self, policy: SamplerPolicy) -> Steps:
        """A fragment, all of it by this policy."""
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
            seen = steps.observation.reshape(lead, -1)
            action = steps.action.reshape(lead, *steps.action.shape[2:])
            steps.log_prob[:] = self._player.log_prob(policy.arrays, seen, action).reshape(steps.reward.shape)
        return steps
