"""Learners that play nothing themselves: they learn from samplers' steps, and publish their policy."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_environments import Step, VectorEnvironment
from learnloop_environments.base import Observations
from learnloop_environments.errors import ConfigError
from learnloop_environments.unplayed import Unplayed
from learnloop_trainer.algorithms import traits_of
from learnloop_trainer.algorithms.base import Experience, Occasion
from learnloop_trainer.algorithms.dqn import Dqn
from learnloop_trainer.algorithms.ppo import Ppo, Rollout
from learnloop_trainer.algorithms.replaying import CHUNK
from learnloop_trainer.algorithms.sac import Sac
from learnloop_trainer.floating_point import require_learned
from learnloop_trainer.neural.networks import Network
from learnloop_trainer.sampling.intake import Block, Intake, Shape
from learnloop_trainer.sampling.players import WARM
from learnloop_trainer.store.run_store import Arrays
from learnloop_trainer.training_order import Order

WAIT_SECONDS = 0.5  # for fragments, before the run looks whether it is to save or to leave


class DistantEnvironment(Unplayed):
    """A VectorEnvironment with the spaces of a real one. Its steps and episodes are the samplers'."""

    def __init__(self, sample: VectorEnvironment, members: range) -> None:
        self.observations, self.actions, self.members = sample.observations, sample.actions, members
        self._bounds = sample.bounds
        sample.close()

    def step(self, actions: NDArray[Any]) -> Step:
        """Raises NotImplementedError."""
        raise NotImplementedError(f"samplers take the steps of this run; its learner took {len(actions)}")

    def state(self) -> None:
        """None: episodes are elsewhere."""
        return


class SampledLearner:
    """A learner with the queue of its samplers' fragments."""

    intake: Intake
    network: Network
    step: int
    algorithm: ClassVar[str]

    def publish(self) -> None:
        """Let samplers play with the policy as it is now, without a value function."""
        traits = traits_of(self.algorithm)
        heads = tuple(f"{name}." for name in traits.perceptrons)
        deviation = traits.deviation[0] if traits.deviation is not None else None
        arrays = self.network.arrays().items()
        policy: Arrays = {name: array for name, array in arrays if name.startswith(heads) or name == deviation}
        policy |= self.network.fixed
        if self.network.warm:
            policy[WARM] = np.ones(1)
        self.intake.publish(policy, self.step)


class SampledPpo(SampledLearner, Ppo):
    """PPO on rollouts by the newest few versions of its policy."""

    algorithm = "ppo"

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """One update, from `environments` pieces of `horizon` steps."""
        block = self.intake.take(WAIT_SECONDS)
        if block is None:
            return observation, []
        steps = block.steps
        normal = (
            steps.observation if self._normaliser is None else np.stack([*map(self._normaliser.see, steps.observation)])
        )
        rollout = Rollout(normal, steps.successor, steps.action, steps.reward, steps.terminated, steps.truncated)
        experience = self.learn(rollout, steps.log_prob)
        self.publish()
        return observation, [_experience(block, experience.losses)]


class SampledDqn(SampledLearner, Dqn):
    """DQN whose replay buffer is one ring of pieces of episodes, from all samplers."""

    algorithm = "dqn"

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """Stores CHUNK steps, with the updates that are due between them."""
        self.memory.ask(self.network.vector.device)
        block = self.intake.take(WAIT_SECONDS)
        if block is None:
            return observation, []
        with torch.inference_mode():
            for observed, action, step in _transitions(block):
                self._store(observed, np.asarray(action, dtype=np.int64), step)
                self._learn()
                self.step += 1
        require_learned(self.step, self.network.vector.sum(), *self.replay.learned_from())
        self.publish()
        return observation, [_experience(block, self._told())]


class SampledSac(SampledLearner, Sac):
    """SAC whose replay buffer is one ring of pieces of episodes, from all samplers."""

    algorithm = "sac"

    def iterate(self, observation: Observations) -> tuple[Observations, list[Experience]]:
        """Stores CHUNK steps, with the updates that are due between them."""
        self.begin_memory()
        block = self.intake.take(WAIT_SECONDS)
        if block is None:
            return observation, []
        with torch.inference_mode():
            for t, (observed, action, step) in enumerate(_transitions(block)):
                self.replay.add(observed, action, step)
                self._update.watched = t == CHUNK - 1
                self._learn()
                self.step += 1
        weights = self.network.vector.sum() + self.critics.vector.sum()
        require_learned(self.step, weights, *self.replay.learned_from())
        self.publish()
        return observation, [_experience(block, self._told())]


LEARNERS: dict[str, type[SampledPpo] | type[SampledDqn] | type[SampledSac]] = {
    made.algorithm: made for made in (SampledPpo, SampledDqn, SampledSac)
}
"""By the name of the algorithm: those of `learnloop_api.kinds.training.algorithms.SAMPLED`."""


def shape_of(order: Order, environment: VectorEnvironment) -> Shape:
    """The form of fragments on which the learner and its samplers agree."""
    parameters = order.parameters
    if parameters.algorithm.name == "ppo":
        return Shape.of(environment, parameters.horizon, corrected=True)
    return Shape.of(environment, CHUNK, corrected=False)


def sampled(
    order: Order, environment: VectorEnvironment, occasion: Occasion, device: torch.device
) -> SampledPpo | SampledDqn | SampledSac:
    """The learner of the order's algorithm; raises ConfigError where samplers cannot play for it."""
    algorithm, samplers = order.spec.algorithm, order.spec.samplers
    if algorithm not in LEARNERS or samplers is None:
        fix = f"remove samplers, or use {', '.join(LEARNERS)}"
        raise ConfigError("spec.samplers", algorithm, "learns without samplers", fix)
    learner = LEARNERS[algorithm](order.parameters, environment, occasion, device)
    usual = 4 if algorithm == "ppo" else 1024  # a replay buffer takes steps of any age
    staleness = usual if samplers.max_staleness is None else samplers.max_staleness
    learner.intake = Intake(shape_of(order, environment), occasion.environments, staleness)
    if isinstance(learner, SampledPpo):
        learner.ratio_max = samplers.ratio_max
    return learner


def _experience(block: Block, losses: Mapping[str, float]) -> Experience:
    steps = block.steps
    actions = steps.action if steps.action.dtype == np.int64 else None
    return Experience(steps.reward, steps.terminated | steps.truncated, losses, actions, block.returns)


def _transitions(block: Block) -> Iterator[tuple[Observations, NDArray[Any], Step]]:
    """The steps of a block of one row, in their order, each as one environment's vector step."""
    steps = block.steps
    for t in range(len(steps.reward)):
        step = Step(steps.successor[t], steps.successor[t], steps.reward[t], steps.terminated[t], steps.truncated[t])
        yield steps.observation[t], steps.action[t], step
