"""A search space in Optuna's terms, and its values back in ours."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.trial import Trial

from learnloop_api.kinds.study import SearchDimension

WORDS = {"true": True, "false": False}


def suggest(trial: Trial, dimension: SearchDimension) -> None:
    """Draws one parameter of a trial, unless it has it already; architectures are categories, written as JSON.

    Raises ValueError when the dimension has none of the four kinds of values.
    """
    name = dimension.parameter
    if (real := dimension.float_) is not None:
        trial.suggest_float(name, real.low, real.high, log=real.log)
    elif (whole := dimension.int_) is not None:
        trial.suggest_int(name, whole.low, whole.high, step=whole.step, log=whole.log)
    elif dimension.choices is not None:
        trial.suggest_categorical(name, list(dimension.choices))
    elif dimension.layers is not None:
        trial.suggest_categorical(name, [json.dumps(list(layers)) for layers in dimension.layers])
    else:
        raise ValueError(f"space.{name}: set one of float, int, choices and layers")


def values(space: Sequence[SearchDimension], found: Mapping[str, Any]) -> dict[str, Any]:
    """Optuna's values as a TrainingJob has them: lists of widths, switches, numbers and words."""
    result: dict[str, Any] = {}
    for dimension in space:
        if dimension.parameter not in found:
            continue
        value = found[dimension.parameter]
        if dimension.layers is not None:
            value = json.loads(value)
        elif dimension.choices is not None:
            value = WORDS.get(value, value)
        result[dimension.parameter] = value
    return result
