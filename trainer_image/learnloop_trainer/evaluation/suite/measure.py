"""All dimensions asked for, one after another, within the time there is."""

import time
from collections.abc import Callable, Mapping, Sequence

from learnloop_api.kinds.training.evaluation import WEIGHTS, Dimension
from learnloop_api.wire.training import DimensionResult, SuiteResult
from learnloop_environments.errors import ConfigError
from learnloop_trainer.errors import NumericError
from learnloop_trainer.evaluation.suite.dimensions import (
    adaptability,
    coordination,
    generalisation,
    robustness,
    sample_efficiency,
)
from learnloop_trainer.evaluation.suite.stage import Finding, NotMeasured, Returns, Stage
from learnloop_trainer.progress_reporter import say
from learnloop_trainer.statistics.stratified_bootstrap import interquartile_mean, probability_of_improvement

MEASURES: Mapping[Dimension, Callable[[Stage], Finding]] = {
    "sample-efficiency": sample_efficiency,
    "generalisation": generalisation,
    "robustness": robustness,
    "coordination": coordination,
    "adaptability": adaptability,
}


def measure(stage: Stage, ours: Returns, theirs: Returns) -> SuiteResult:
    """The whole suite; `ours` and `theirs` are the returns of the held-out evaluation.

    The time left is shared equally among the dimensions that still wait, so a slow one takes nothing from the others.
    """
    began = time.monotonic()
    end, asked = began + stage.suite.max_seconds, list(stage.suite.dimensions)
    results = []
    for number, dimension in enumerate(asked):
        now = time.monotonic()
        stage.enter(dimension, now + max(0.0, end - now) / (len(asked) - number))
        results.append(_result(stage, dimension))
        say(results[-1].message or _told(results[-1]))
    return SuiteResult(
        improvement=probability_of_improvement([ours], [theirs], stage.order.spec.seed),
        overall=overall(results),
        results=results,
        seconds=time.monotonic() - began,
    )


def overall(results: Sequence[DimensionResult]) -> float | None:
    """The specification's weighted score, of probabilities: they alone have the same unit in every dimension."""
    measured = [(WEIGHTS[one.dimension], one.improvement.value) for one in results if one.improvement is not None]
    total = sum(weight for weight, _ in measured)
    return sum(weight * value for weight, value in measured) / total if measured else None


def _result(stage: Stage, dimension: Dimension) -> DimensionResult:
    try:
        found = MEASURES[dimension](stage)
    except (NotMeasured, NumericError, ConfigError) as why:  # a world that breaks when it is changed proves nothing
        return DimensionResult(dimension=dimension, message=str(why)[:1024])
    seed, alike = stage.order.spec.seed, found.ours if found.alike is None else found.alike
    return DimensionResult(
        dimension=dimension,
        conditions=found.conditions,
        episodes=sum(len(returns) for returns in found.ours),
        iqm=interquartile_mean(found.ours, seed),
        baseline=interquartile_mean(found.theirs, seed),
        improvement=probability_of_improvement(alike, found.theirs, seed),
        reference=interquartile_mean(found.reference, seed),
        compared=found.compared,
    )


def _told(result: DimensionResult) -> str:
    assert result.iqm is not None
    assert result.improvement is not None
    chance = result.improvement
    return (
        f"{result.dimension}: IQM {result.iqm.value:.1f} [{result.iqm.low:.1f}, {result.iqm.high:.1f}], probability of "
        f"improvement {chance.value:.2f} [{chance.low:.2f}, {chance.high:.2f}]"
    )
