"""Environments that a policy is trained in: made as the order says, rewarded, shaped, shielded, or none but the log."""

import numpy as np
from numpy.typing import NDArray

from learnloop_api.kinds import base, reward_policy
from learnloop_api.kinds.training.algorithms import FROM_LOG
from learnloop_api.uniform_policy import parse
from learnloop_environments import (
    Conditions,
    VectorEnvironment,
    errors,
    make,
    randomness,
    rewarded_by_policy,
    spaces,
    wrappers,
)
from learnloop_environments.multipliers import Multipliers
from learnloop_trainer import shielded_environment, training_order
from learnloop_trainer.algorithms import traits_of
from learnloop_trainer.algorithms.base import Traits, registered
from learnloop_trainer.training_run.curriculum import CurriculumProgress

SPACES = "spec.data.spaces"


class Unplayed:
    """A VectorEnvironment for learners of logged experience alone."""

    def __init__(self, address: str, members: range) -> None:
        """`address`: of the uniform policy; raises ConfigError when it says too little."""
        fix = "write the spaces, e.g. uniform://discrete/2?observations=4"
        try:
            spec = parse(address)
        except ValueError as error:
            raise errors.ConfigError(SPACES, address, f"is refused: {error}", fix) from None
        if spec.observations is None:
            raise errors.ConfigError(SPACES, address, "has no length of an observation", fix)
        self.observations, self.members = spec.observations, members
        self.actions, self._bounds = spec.choices, None
        if spec.low:
            first = [(0.0, spec.choices - 1.0)] if spec.choices else []
            ends = [*first, *zip(spec.low, spec.high, strict=True)]
            low, high = (np.asarray([end[side] for end in ends], dtype=np.float32) for side in (0, 1))
            try:
                self.actions, self._bounds = len(ends), spaces.Bounds(low, high, spec.choices)
            except ValueError as error:
                raise errors.ConfigError(SPACES, address, f"is refused: {error}", fix) from None

    @property
    def bounds(self) -> spaces.Bounds | None:
        return self._bounds

    def reset(self) -> spaces.Observations:
        return np.zeros((len(self.members), self.observations), dtype=np.float32)

    def step(self, actions: NDArray[np.generic]) -> spaces.Step:
        """Raises ConfigError."""
        del actions
        fix = "name the environment as spec.data.environment, or learn by bc, cql or iql-offline"
        raise errors.ConfigError("spec.data.environment", "", "is missing, and the run takes a step in it", fix)

    def state(self) -> dict[str, NDArray[np.generic]] | None:
        return {"members": np.asarray(self.members)}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> spaces.Observations:
        del state
        return self.reset()

    def close(self) -> None:
        """See VectorEnvironment.close."""


def require_fitting_actions(order: training_order.Order, environment: VectorEnvironment) -> None:
    algorithm, name = order.spec.algorithm, order.spec.data.world
    field, traits = SPACES if order.spec.data.environment is None else spaces.FIELD, traits_of(algorithm)
    team, single = spaces.agents(environment) > 1, not traits.team
    if team and single:
        problem, fix = f"has a team of agents, {algorithm} trains one", "qmix, independent-dqn or maddpg"
        raise errors.ConfigError(field, name, problem, f"set algorithm to {fix}")
    if not team and not single:
        problem = f"has one agent, {algorithm} trains teams"
        raise errors.ConfigError(
            field, name, problem, "choose an environment with a team, or set algorithm to ppo, dqn or sac"
        )
    kind = spaces.ActionSpace.of(environment).type
    if kind not in traits.actions:
        *most, last = sorted(traits.actions)
        problem = f"has {kind} actions, {algorithm} needs {', '.join(most)}{' or ' * bool(most)}{last} ones"
        alike = [other.name for other in registered() if kind in other.actions and _for_the_same_use(traits, other)]
        fix = f"set algorithm to {' or '.join(alike)}" if alike else "choose another environment"
        raise errors.ConfigError(field, name, problem, fix)


def _for_the_same_use(traits: Traits, other: Traits) -> bool:
    """Learns as many agents from the same source, and asks no more of an environment than its actions."""
    special = other.meta_learned or other.chooser is not None
    return (other.team, other.recorded) == (traits.team, traits.recorded) and not special


def training_world(
    order: training_order.Order,
    members: range,
    policy: reward_policy.RewardPolicySpec | None = None,
    penalties: Multipliers | None = None,
) -> VectorEnvironment:
    """The run's training environments: under its conditions, counted, rewarded by `policy`, shaped and shielded."""
    spec, data = order.spec, order.spec.data
    if data.environment is None:
        return _behind_shield(_unplayed(order, members), order)
    randomise = tuple((item.parameter, item.low, item.high) for item in data.randomise)
    conditions = Conditions(data.level, randomise, data.credit or "team", data.max_steps_per_episode)
    environment = make(data.environment, randomness.Split.TRAINING, spec.seed, members, conditions)
    if spec.curriculum is not None:
        environment = wrappers.Counted(environment)
    if policy is not None:
        if not traits_of(spec.algorithm).recorded:
            rewarded_by_policy.require_measured(policy)
        environment = rewarded_by_policy.Rewarded(environment, policy, data.success_return, penalties)
    if spec.shaping is not None:
        discount = float(getattr(order.parameters, "discount", 1.0))
        shaping = spec.shaping
        environment = wrappers.Shaped(
            environment, discount, potential=shaping.potential, bonus=shaping.coordination_bonus
        )
    return _behind_shield(environment, order)


def _behind_shield(environment: VectorEnvironment, order: training_order.Order) -> VectorEnvironment:
    trail = shielded_environment.Trail(order.job)
    return shielded_environment.shielded(environment, order.spec.safety, trail, exploring=True, policy=order.fallback)


def penalties_of(order: training_order.Order, policy: reward_policy.RewardPolicySpec | None) -> Multipliers | None:
    """Multipliers of the policy's constraints, where the order wants them learned; raises ConfigError without any."""
    rate = getattr(order.parameters, "lagrangian_learning_rate", None)
    if rate is None:
        return None
    if policy is None or not policy.constraints:
        problem = "learns multipliers of a RewardPolicy's constraints, and there are none"
        fix = "set spec.data.rewards to policy and give the RewardPolicy constraints, or leave it out"
        raise errors.ConfigError("spec.hyperparameters.lagrangianLearningRate", rate, problem, fix)
    return Multipliers(policy.constraints, rate)


def _unplayed(order: training_order.Order, members: range) -> VectorEnvironment:
    """Placeholder of an environment; raises ConfigError where something would play it."""
    spec, missing = order.spec, "is missing"
    if not traits_of(spec.algorithm).recorded:
        able = ", ".join(FROM_LOG)
        problem = f"{missing}: {spec.algorithm} plays it"
        raise errors.ConfigError("spec.data.environment", "", problem, f"name it, or set algorithm to one of {able}")
    evaluation = spec.evaluation
    settings: dict[str, base.Resource | None] = {"curriculum": spec.curriculum, "shaping": spec.shaping}
    settings |= {"evaluation.suite": evaluation.suite, "evaluation.whileTraining": evaluation.while_training}
    for name, wanted in settings.items():
        if wanted is not None:
            problem = f"{missing}: spec.{name} plays it"
            raise errors.ConfigError("spec.data.environment", "", problem, f"name it, or leave {name} out")
    return Unplayed(spec.data.spaces or "", members)


def levels(environment: VectorEnvironment, order: training_order.Order) -> CurriculumProgress | None:
    """The curriculum the order asks for, at its beginning."""
    if order.spec.curriculum is None:
        return None
    world = wrappers.innermost(environment)
    return CurriculumProgress(getattr(world, "LEVELS", ()), getattr(world, "level", 0), order.spec.curriculum)
