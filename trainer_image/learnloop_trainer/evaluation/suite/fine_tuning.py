"""A student that goes on from given weights in changed conditions, and the weights it ends with.

Most algorithms are their own student. What learned from recorded experience has none of the changed conditions: PPO,
DQN or SAC, whichever has the same network, goes on from its weights. What was meta-learned adapts as it was made to: by
its inner steps on few episodes, from the weights given.
"""

from dataclasses import replace
from typing import Any

import torch

from learnloop_api.kinds.training.algorithms import Parameters, hyperparameters
from learnloop_environments import Conditions, VectorEnvironment, make
from learnloop_environments.randomness import Split
from learnloop_trainer.algorithms import Occasion, learner, traits_of
from learnloop_trainer.algorithms.shield_advice import advise
from learnloop_trainer.algorithms.traits import of_parameters
from learnloop_trainer.algorithms.weight_transfer import warm
from learnloop_trainer.distributed.torch_group import Alone
from learnloop_trainer.evaluation.suite.stage import Disturb, Stage, Weights
from learnloop_trainer.safety import shielded
from learnloop_trainer.training_order import Order


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
    """Which algorithm goes on where one has learned from recorded experience: that of the same network."""
    return next(
        (name for name in ("ppo", "dqn", "sac") if traits_of(name).network == traits_of(recorded).network), "ppo"
    )


def _student(order: Order) -> Parameters:
    """The hyperparameters it goes on with: exploring no more than at the end of training."""
    parameters = order.parameters
    if traits_of(order.spec.algorithm).recorded:
        parameters = hyperparameters(_successor(order.spec.algorithm), hidden=list(parameters.hidden))
    explored = getattr(parameters, "epsilon_end", None)
    return parameters if explored is None else parameters.model_copy(update={"epsilon_start": explored})


def _world(stage: Stage, count: int, conditions: Conditions, disturb: Disturb | None) -> VectorEnvironment:
    spec = stage.order.spec
    world = make(stage.order.environment, Split.TRAINING, spec.seed, range(count), conditions)
    return shielded(world if disturb is None else disturb(world), spec.safety)


def _warm(stage: Stage, parameters: Parameters, world: VectorEnvironment, weights: Weights) -> Any:
    occasion = Occasion(stage.order.spec.seed, stage.suite.adaptation_steps, parameters.environments, Alone())
    student = learner(parameters, world, occasion, torch.device(stage.device))
    advise(world, student, of_parameters(parameters), stage.order.spec.seed)
    warm(student, weights, of_parameters(parameters))
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
