"""A learner that begins from somebody else's weights instead of random ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop_trainer.algorithms import Learner, base
from learnloop_trainer.neural.observation_normalisation import MEAN, SCALE, remembered

Weights = Mapping[str, NDArray[Any]]
LOG_DEVIATION, COOLER = -2.0, -3.0
TEMPERATURE = "temperature:log_temperature"
COPY = "target"  # name of a flat copy of the exported network in a learner's state


def warm(learner: Learner, weights: Weights, traits: base.Traits) -> list[str]:
    """Put `weights` (arrays by name, e.g. policy.0.weight [in, out]) in the place of the learner's own.

    Targets follow; the optimizer, counters, replay and every other perceptron stay as they are. Of a head for
    continuous actions an export has the means only. Where `traits` name deviations, they become exp(LOG_DEVIATION), so
    that the policy acts much as it did. Entropy is worth exp(COOLER) of its value at the start of a run.

    Returns the names taken over; raises ValueError, naming both shapes, when one does not fit.
    """
    state, shapes = learner.shared(), learner.network.shapes
    taken = [name for name in shapes if name in weights]
    _require_as_many_layers(shapes, weights)
    has_deviations = traits.deviation is not None and traits.deviation[0] is None
    for name in taken:
        means = has_deviations and _last(name, shapes)
        state[name] = _placed(name, np.asarray(state[name]), np.asarray(weights[name]), means=means)
    flat = np.concatenate([np.asarray(state[name]).ravel() for name in shapes])
    if COPY in state:
        state[COPY] = flat
    if (MEAN in weights) != (MEAN in learner.network.fixed):
        verb = ("saw", "true") if MEAN in weights else ("did not see", "false")
        raise ValueError(f"the policy given {verb[0]} normalised observations: set normaliseObservations to {verb[1]}")
    if MEAN in weights:
        state |= remembered(np.asarray(weights[MEAN]), np.asarray(weights[SCALE]))
    state["warm"] = np.asarray([True])
    if TEMPERATURE in state:
        state[TEMPERATURE] = np.asarray(state[TEMPERATURE], dtype=np.float32) + np.float32(COOLER)
    learner.restore(state, learner.own())
    return taken


def _last(name: str, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether an array belongs to the last layer of its perceptron; some belong to none."""
    perceptron, _, rest = name.partition(".")
    layer, _, kind = rest.partition(".")
    return layer.isdecimal() and f"{perceptron}.{int(layer) + 1}.{kind}" not in shapes


def _require_as_many_layers(shapes: Mapping[str, tuple[int, ...]], weights: Weights) -> None:
    own = {name.split(".")[0] for name in shapes}
    for perceptron in sorted(own & {name.split(".")[0] for name in weights}):
        counts = [
            sum(name.startswith(f"{perceptron}.") and name.endswith(".weight") for name in side)
            for side in (weights, shapes)
        ]
        if counts[0] != counts[1]:
            raise ValueError(f"{perceptron} has {counts[0]} layers, this network's has {counts[1]}")


def _placed(name: str, own: NDArray[Any], given: NDArray[Any], *, means: bool) -> NDArray[Any]:
    if own.shape == given.shape:
        return given
    if not means or own.shape[:-1] != given.shape[:-1] or own.shape[-1] != 2 * given.shape[-1]:
        raise ValueError(f"{name} has shape {list(given.shape)}, this network's is {list(own.shape)}")
    joined = np.full_like(own, LOG_DEVIATION if own.ndim == 1 else 0.0)
    joined[..., : given.shape[-1]] = given
    return joined
