"""Learners that play nothing themselves: they take what samplers have sent, and publish what they have learned."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_environments import Step, VectorEnvironment
from learnloop_environments.base import Observations
from learnloop_environments.errors import ConfigError
from learnloop_trainer.algorithms import traits_of
from learnloop_trainer.algorithms.base import Experience, Learner, Occasion
from learnloop_trainer.algorithms.dqn import CHUNK, Dqn
from learnloop_trainer.algorithms.ppo import Ppo, Rollout
from learnloop_trainer.algorithms.sac import Sac
from learnloop_trainer.floating_point import require_learned
from learnloop_trainer.neural.dense_networks import Network
from learnloop_trainer.sampling.fragment import Shape
from learnloop_trainer.sampling.intake import Block, Intake
from learnloop_trainer.sampling.players import WARM
from learnloop_trainer.training_order import Order

WAIT_SECONDS = 0.5  # for fragments, before the run looks whether it is to save or to leave
STALENESS = {"ppo": 4}  # where spec.samplers says nothing
OLD_ANYWAY = 1024  # of those that learn from a replay buffer


@runtime_checkable
class SampledLearner(Learner, Protocol):
    """A learner with what its samplers send."""

    intake: Intake

    def publish(self) -> None:
        """Let samplers play with the policy as it is now."""


def shape_of(order: Order, environment: VectorEnvironment) -> Shape:
    """The fragments that the learner and its samplers agree on."""
    parameters = order.parameters
    if parameters.algorithm.name == "ppo":
        return Shape.of(environment, parameters.horizon, corrected=True)
    return Shape.of(environment, CHUNK, corrected=False)


def sampled(order: Order, environment: VectorEnvironment, occasion: Occasion, device: torch.device) -> SampledLearner:
    """The learner of the order's algorithm; raises ConfigError where samplers cannot play for it."""
    made = LEARNERS.get(order.spec.algorithm)
    if made is None or order.spec.samplers is None:
        known = ", ".join(LEARNERS)
        raise ConfigError(
            "spec.samplers", order.spec.algorithm, "learns without samplers", f"remove samplers, or use {known}"
        )
    asked = order.spec.samplers.max_staleness
    most = STALENESS.get(order.spec.algorithm, OLD_ANYWAY) if asked is None else asked
    intake = Intake(shape_of(order, environment), occasion.environments, most)
    return made(order, environment, occasion, device, intake)


def acting(network: Network, algorithm: str) -> Mapping[str, NDArray[np.generic]]:
    """What a policy acts by, of all that a network holds: no value function."""
    traits = traits_of(algorithm)
    heads = tuple(f"{name}." for name in traits.perceptrons)
    deviation = traits.deviation[0] if traits.deviation is not None else None
    found = {name: array for name, array in network.arrays().items() if name.startswith(heads) or name == deviation}
    return found | dict(network.fixed) | ({WARM: np.ones(1)} if network.warm else {})


def told(block: Block, losses: Mapping[str, float]) -> Experience:
    """What happened, for the session."""
    steps = block.steps
    actions = steps.action if steps.action.dtype == np.int64 else None
    return Experience(steps.reward, steps.terminated | steps.truncated, losses, actions, block.returns)


class SampledPpo(Ppo):
    """PPO on rollouts that policies of the last few versions have taken."""

    def __init__(
        self, order: Order, environment: VectorEnvironment, occasion: Occasion, device: torch.device, intake: Intake
    ) -> None:
        """A fresh learner at step 0; nobody plays before `publish`."""
        assert order.spec.samplers is not None  # `sampled` has looked
        super().__init__(order.parameters, environment, occasion, device)
        self.intake, self.ratio_max = intake, order.spec.samplers.ratio_max

    def publish(self) -> None:
        """See Sampled."""
        self.intake.publish(acting(self.network, "ppo"), self.step)

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """See Learner.iterate: one update, from `environments` pieces of `horizon` steps."""
        block = self.intake.take(WAIT_SECONDS)
        if block is None:
            return observation, []
        steps = block.steps
        seen = (
            steps.observation if self._normaliser is None else np.stack([*map(self._normaliser.see, steps.observation)])
        )
        rollout = Rollout(seen, steps.successor, steps.action, steps.reward, steps.terminated, steps.truncated)
        experience = self.learn(rollout, steps.log_prob)
        self.publish()
        return observation, [told(block, experience.losses)]


class SampledDqn(Dqn):
    """DQN whose replay buffer is one ring: pieces of episodes one after another, whoever played them."""

    def __init__(
        self, order: Order, environment: VectorEnvironment, occasion: Occasion, device: torch.device, intake: Intake
    ) -> None:
        """A fresh learner at step 0; nobody plays before `publish`."""
        super().__init__(order.parameters, environment, occasion, device)
        self.intake = intake

    def publish(self) -> None:
        """See Sampled."""
        self.intake.publish(acting(self.network, "dqn"), self.step)

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """See Learner.iterate: takes up CHUNK steps, with the updates that are due between them."""
        self.memory.ask(self.network.vector.device)
        block = self.intake.take(WAIT_SECONDS)
        if block is None:
            return observation, []
        with torch.inference_mode():
            for seen, action, step in transitions(block):
                self._store(seen, np.asarray(action, dtype=np.int64), step)
                self._learn()
                self.step += 1
        require_learned(self.step, self.network.vector.sum(), *self.replay.learned_from())
        self.publish()
        return observation, [told(block, self._told())]


class SampledSac(Sac):
    """SAC whose replay buffer is one ring: pieces of episodes one after another, whoever played them."""

    def __init__(
        self, order: Order, environment: VectorEnvironment, occasion: Occasion, device: torch.device, intake: Intake
    ) -> None:
        """A fresh learner at step 0; nobody plays before `publish`."""
        super().__init__(order.parameters, environment, occasion, device)
        self.intake = intake

    def publish(self) -> None:
        """See Sampled."""
        self.intake.publish(acting(self.network, "sac"), self.step)

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """See Learner.iterate: takes up CHUNK steps, with the updates that are due between them."""
        self.begin_memory()
        block = self.intake.take(WAIT_SECONDS)
        if block is None:
            return observation, []
        with torch.inference_mode():
            for t, (seen, action, step) in enumerate(transitions(block)):
                self.replay.add(seen, action, step)
                self._update.watched = t == CHUNK - 1
                self._learn()
                self.step += 1
        weights = self.network.vector.sum() + self.critics.vector.sum()
        require_learned(self.step, weights, *self.replay.learned_from())
        self.publish()
        return observation, [told(block, self._told())]


def transitions(block: Block) -> "list[tuple[Observations, NDArray[np.generic], Step]]":
    """The steps of a block of one row, in their order, each as one environment's vector step.

    The last one ends its piece, as a time limit would: no window of n steps may reach into what another sampler sent.
    """
    steps = block.steps
    truncated = steps.truncated.copy()
    truncated[-1] |= ~steps.terminated[-1]
    whole = replace(steps, truncated=truncated)
    found = []
    for t in range(len(steps.reward)):
        step = Step(whole.successor[t], whole.successor[t], whole.reward[t], whole.terminated[t], whole.truncated[t])
        found.append((whole.observation[t], whole.action[t], step))
    return found


LEARNERS: dict[str, type[SampledPpo] | type[SampledDqn] | type[SampledSac]] = {
    "ppo": SampledPpo,
    "dqn": SampledDqn,
    "sac": SampledSac,
}
"""By the name of the algorithm: those of `learnloop_api.kinds.training.algorithms.SAMPLED`."""
