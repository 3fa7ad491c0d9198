"""How a number changes over a run, by the share of the run that is done."""

import math

from learnloop_api.kinds.training.algorithms import Parameters

WARM_UP = 0.25
"""Of a run that begins from a trained policy: in this share its critics alone learn."""


def decayed(start: float, kind: str, done: float) -> float:
    """`start` at done = 0: stays (constant), falls along a line (linear) or half a cosine (cosine) to 0 at done = 1.

    >>> [round(decayed(2.0, kind, 0.5), 6) for kind in ("constant", "linear", "cosine")]
    [2.0, 1.0, 1.0]
    """
    left = 1.0 - min(1.0, max(0.0, done))
    match kind:
        case "linear":
            return start * left
        case "cosine":
            return start * (1.0 - math.cos(math.pi * left)) / 2.0
        case _:
            return start


def between(start: float, end: float | None, done: float) -> float:
    """Along a line from `start` at done = 0 to `end` at done = 1; `start` throughout without an end."""
    return start if end is None else start + (end - start) * min(1.0, max(0.0, done))


def explored(start: float, end: float, done: float, *, warm: bool) -> float:
    """The rate of exploration, which falls along a line; one that begins from a trained policy begins at its end."""
    return end if warm else between(start, end, done)


def held(done: float, *, warm: bool) -> bool:
    """Whether a trained policy waits for its critics, which begin from random weights: they would ruin it."""
    return warm and done < WARM_UP


def step_size(parameters: Parameters, start: float, done: float) -> float:
    """The step size that begins at `start`, by the run's schedule and its warm-up.

    >>> from learnloop_api.kinds.training.algorithms import hyperparameters
    >>> parameters = hyperparameters("dqn", learning_rate_schedule="constant", warmup=0.2)
    >>> [step_size(parameters, 2.0, done) for done in (0.1, 0.2, 0.9)]
    [1.0, 2.0, 2.0]
    """
    risen = 1.0 if parameters.warmup == 0 else min(1.0, done / parameters.warmup)
    return risen * decayed(start, parameters.learning_rate_schedule, done)
