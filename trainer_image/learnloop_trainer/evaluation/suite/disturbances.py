"""One dimension being measured: its disturbances, and a student that goes on in changed conditions.

Most algorithms are their own student. What learned from recorded experience has none of the changed conditions: PPO,
DQN or SAC, whichever has the same network, goes on from its weights. What was meta-learned adapts as it was made to: by
its inner steps on few episodes, from the weights given.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from learnloop_api.kinds.training import algorithms, evaluation
from learnloop_environments import Conditions, VectorEnvironment, make, randomness, wrappers
from learnloop_environments.spaces import Observations, Step
from learnloop_trainer import distributed, shielded_environment, training_order
from learnloop_trainer.algorithms import Occasion, base, learner, traits_of, weight_transfer
from learnloop_trainer.evaluation.held_out_episodes import Policy, held_out, nominal, play

Returns = NDArray[np.float64]
Weights = Mapping[str, NDArray[np.float32]]
Disturb = Callable[[VectorEnvironment], VectorEnvironment]
FIRST = 1_000_000  # far above the numbers of the evaluation itself
ROOM = 64  # conditions of one dimension at most
PER_CONDITION = 10_000  # numbers reserved for each


class NotMeasured(Exception):
    """Why a dimension has no figures; the text is for a human."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Returns [episodes] of ours and of the baseline under each condition, and what they are compared with.

    `alike`: ours in the state that the baseline is in, where `ours` are in another (fine-tuned, not yet trained).
    """

    conditions: list[str]
    ours: list[Returns]
    baseline: list[Returns]
    reference: list[Returns]
    compared: str
    alike: list[Returns] | None = None


@dataclass(slots=True)
class Stage:
    """One run's exported policy against its baseline."""

    order: training_order.Order
    suite: evaluation.Suite
    policy: Policy
    baseline: Policy
    policy_of: Callable[[Weights], Policy]  # the exported graph with other weights
    weights: Weights  # the exported policy's, by name
    milestones: Mapping[int, Weights]  # step → weights along training
    met: Observations  # [m, observations], what the policy met in evaluation
    device: torch.device
    alive: Callable[[str], None]
    dimension: evaluation.Dimension = "robustness"
    deadline: float = field(default=float("inf"))
    _used: int = 0

    def enter(self, dimension: evaluation.Dimension, deadline: float) -> None:
        """From now on this dimension plays, until `deadline` on the monotonic clock."""
        self.dimension, self.deadline, self._used = dimension, deadline, 0

    def check(self) -> None:
        """Raises NotMeasured when the time is up."""
        if time.monotonic() > self.deadline:
            raise NotMeasured("no time left: raise evaluation.suite.maxSeconds, or lower episodes")

    def fresh(self) -> int:
        """The first number of a condition's own episodes: no other condition has them."""
        if self._used >= ROOM:
            raise NotMeasured(f"more than {ROOM} conditions")
        number = FIRST + (evaluation.DIMENSIONS.index(self.dimension) * ROOM + self._used) * PER_CONDITION
        self._used += 1
        return number

    def play(
        self,
        policy: Policy,
        first: int,
        conditions: Conditions | None = None,
        disturb: Disturb | None = None,
        split: randomness.Split = randomness.Split.HELD_OUT,
    ) -> Returns:
        """The policy's returns on the episodes from number `first`; raises NotMeasured when the time is up."""
        world = held_out(self.order, nominal(self.order) if conditions is None else conditions, first, split)
        build = world if disturb is None else lambda members: disturb(world(members))
        episodes = self.suite.episodes

        def report(done: int) -> None:
            self.alive(f"{self.dimension}: {done}/{episodes} episodes")
            self.check()

        report(0)
        return play(build, policy, self.order.spec.seed, episodes, report)[0]

    def both(
        self, conditions: Conditions | None = None, disturb: Disturb | None = None, policy: Policy | None = None
    ) -> tuple[Returns, Returns]:
        """Our returns and the baseline's on the same new episodes; `policy`: in the place of ours."""
        first = self.fresh()
        ours = self.play(policy or self.policy, first, conditions, disturb)
        return ours, self.play(self.baseline, first, conditions, disturb)


class Noisy(wrappers.Wrapper):
    """Adds normal noise to what is seen; the dynamics, the shield and the rewards stay exact."""

    def __init__(self, inner: VectorEnvironment, deviation: NDArray[np.floating], seed: int) -> None:
        """`deviation` [observations], in the unit of each observation."""
        super().__init__(inner)
        self._deviation, self._random = (
            deviation.astype(np.float32),
            randomness.generator(randomness.Purpose.NOISE, seed, 1),
        )

    def _blurred(self, observation: Observations) -> Observations:
        noise = self._random.standard_normal(observation.shape, dtype=np.float32)
        return observation + self._deviation * noise

    def reset(self) -> Observations:
        return self._blurred(self.inner.reset())

    def step(self, actions: NDArray[Any]) -> Step:
        step = self.inner.step(actions)
        return replace(step, observation=self._blurred(step.observation), successor=self._blurred(step.successor))


class Sticky(wrappers.Wrapper):
    """Now and then the previous action once more (Machado et al., 2018, arXiv 1709.06009): for any environment."""

    def __init__(self, inner: VectorEnvironment, share: float, seed: int) -> None:
        """`share` of steps in which the action before is executed instead."""
        super().__init__(inner)
        self._share, self._random = share, randomness.generator(randomness.Purpose.NOISE, seed, 2)
        self._before: NDArray[Any] | None = None
        self._going = np.ones(len(inner.members), dtype=np.bool_)

    def reset(self) -> Observations:
        self._before = None
        return self.inner.reset()

    def step(self, actions: NDArray[Any]) -> Step:
        """An episode's first action is never replaced."""
        executed = actions
        draws = self._random.random(len(actions))
        if self._before is not None:
            stuck = draws < self._share
            executed = actions.copy()
            executed[stuck & self._going] = self._before[stuck & self._going]
        step = self.inner.step(executed)
        self._before, self._going = executed, ~(step.terminated | step.truncated)
        return step


def effort(stage: Stage) -> str:
    spec, parameters = stage.order.spec, stage.order.parameters
    if traits_of(spec.algorithm).meta_learned:
        steps = getattr(parameters, "adaptation_steps", 1)
        return f"{steps} inner step{'s' if steps > 1 else ''} on {getattr(parameters, 'episodes', 0)} episodes"
    student = f" of {_successor(spec.algorithm)}" if traits_of(spec.algorithm).recorded else ""
    return f"{stage.suite.adaptation_steps} steps{student}"


def tuned(stage: Stage, weights: Weights, conditions: Conditions, disturb: Disturb | None = None) -> Weights:
    """Weights after fine-tuning on training's seeds; raises NotMeasured when the time is up."""
    if traits_of(stage.order.spec.algorithm).meta_learned:
        return _adapted(stage, weights, conditions, disturb)
    parameters = _student(stage.order)
    world = _world(stage, parameters.environments, conditions, disturb)
    try:
        student = _warm(stage, parameters, world, weights)
        observation = world.reset()
        while student.step < stage.suite.adaptation_steps:
            stage.alive(f"{stage.dimension}: step {student.step}/{stage.suite.adaptation_steps}")
            stage.check()
            observation, _ = student.iterate(observation)
        return {name: array.copy() for name, array in student.network.exported().items()}
    finally:
        world.close()


def _successor(recorded: str) -> str:
    """The algorithm that goes on after learning from a record: that of the same network."""
    return next(
        (name for name in ("ppo", "dqn", "sac") if traits_of(name).network == traits_of(recorded).network), "ppo"
    )


def _student(order: training_order.Order) -> algorithms.Parameters:
    """The hyperparameters it goes on with: exploring no more than at the end of training."""
    parameters = order.parameters
    if traits_of(order.spec.algorithm).recorded:
        parameters = algorithms.hyperparameters(_successor(order.spec.algorithm), hidden=list(parameters.hidden))
    explored = getattr(parameters, "epsilon_end", None)
    return parameters if explored is None else parameters.model_copy(update={"epsilon_start": explored})


def _world(stage: Stage, count: int, conditions: Conditions, disturb: Disturb | None) -> VectorEnvironment:
    spec = stage.order.spec
    limited = replace(conditions, max_steps=spec.data.max_steps_per_episode)
    world = make(stage.order.environment, randomness.Split.TRAINING, spec.seed, range(count), limited)
    disturbed = world if disturb is None else disturb(world)
    return shielded_environment.shielded(disturbed, spec.safety, policy=stage.order.fallback)


def _warm(stage: Stage, parameters: algorithms.Parameters, world: VectorEnvironment, weights: Weights) -> Any:
    occasion = Occasion(
        stage.order.spec.seed, stage.suite.adaptation_steps, parameters.environments, distributed.Alone()
    )
    student = learner(parameters, world, occasion, torch.device(stage.device))
    base.advise(world, student, traits_of(parameters.algorithm.name), stage.order.spec.seed)
    weight_transfer.warm(student, weights, traits_of(parameters.algorithm.name))
    return student


def _adapted(stage: Stage, weights: Weights, conditions: Conditions, disturb: Disturb | None) -> Weights:
    """The inner steps of meta-learning, for the one task that these conditions are."""
    parameters, family = stage.order.parameters, stage.order.spec.data.randomise
    ranges = tuple((item.parameter, item.low, item.high) for item in family)
    world = _world(stage, parameters.environments, replace(conditions, randomise=ranges), disturb)
    try:
        student = _warm(stage, parameters, world, weights)
        stage.check()
        task = student.nominal() | {name: low for name, low, _ in conditions.randomise}
        return {name: array.cpu().numpy() for name, array in student.adapted_to(task).items()}
    finally:
        world.close()
