"""What remains of the return when the world is not as it was in training: noise, late actions, other physics."""

import math
from collections.abc import Mapping

import numpy as np

from learnloop_environments import Conditions
from learnloop_environments.simulation import Level
from learnloop_trainer.evaluation.held_out_episodes import nominal, sample
from learnloop_trainer.evaluation.suite.disturbances import Noisy, Sticky
from learnloop_trainer.evaluation.suite.stage import Disturb, Finding, Stage

MOST = 4  # physical parameters varied, in the order the environment names them


def physics(stage: Stage) -> dict[str, float]:
    """The environment's parameters at the level evaluated that can be raised and lowered by a share of their value."""
    world = sample(stage.order)
    parameters: Mapping[str, float] = getattr(world, "PARAMETERS", {})
    levels: tuple[Level, ...] = getattr(world, "LEVELS", ())
    usual = nominal(stage.order).level
    level = next((one.parameters for one in levels if one.name == usual), levels[0].parameters if levels else {})
    values = {**parameters, **level}
    return {name: value for name, value in values.items() if name != "max_steps" and value}


def varied(value: float, factor: float) -> float:
    """The value times the factor; counts (whole numbers from 2 up) stay whole."""
    product = value * factor
    if value != int(value) or value < 2:
        return product
    return float(math.ceil(product) if factor > 1 else math.floor(product))


def measure(stage: Stage) -> Finding:
    """Conditions: noise, sticky actions, each parameter up and down; the reference is the undisturbed world."""
    seed, share = stage.order.spec.seed, stage.suite.perturbation
    deviation = stage.suite.noise * stage.met.std(axis=0)
    disturbed: list[tuple[str, Conditions | None, Disturb | None]] = [
        (f"noise {stage.suite.noise:g}", None, lambda inner: Noisy(inner, np.asarray(deviation), seed)),
        (f"{share:.0%} of actions repeated", None, lambda inner: Sticky(inner, share, seed)),
    ]
    usual = nominal(stage.order).level
    for name, value in list(physics(stage).items())[:MOST]:
        for factor in (1.0 - share, 1.0 + share):
            other = varied(value, factor)
            disturbed.append((f"{name} {other:g}", Conditions(usual, ((name, other, other),)), None))
    pairs = [stage.both(conditions, disturb) for _, conditions, disturb in disturbed]
    calm = stage.play(stage.policy, stage.fresh())
    names = [name for name, _, _ in disturbed]
    return Finding(names, [a for a, _ in pairs], [b for _, b in pairs], [calm], "the undisturbed environment")
