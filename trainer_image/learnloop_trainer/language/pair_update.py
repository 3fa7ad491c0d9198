"""One update from pairs of answers, over all ranks: what DPO and reward models share."""

from collections.abc import Callable, Sequence

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_trainer.language.batches import batched_pairs
from learnloop_trainer.language.learning import Round, Setting, Stepper, Sums
from learnloop_trainer.language.rows import Pair

Backward = Callable[[Sequence[Pair], float, Sums], None]
"""Adds the gradient of some pairs, each weighed by one of so many, and notes what they looked like."""


def updated(
    parameters: Parameters,
    setting: Setting,
    drawn: Sequence[Pair],
    step: int,
    backward: Backward,
    idle: Callable[[], None],
    curves: Sequence[str],
) -> Round:
    """Learns from `drawn`, the batch of all ranks, of which this one takes its share; `step` is that before it.

    `idle` calls the model as `backward` does, for ranks that have fewer batches than others.
    """
    size = parameters.batch_pairs
    share = setting.group.place.share(size)
    sums = Sums()
    own = batched_pairs(drawn[share.start : share.stop], parameters.tokens_per_batch)
    setting.network.held.each(own, lambda pairs: backward(pairs, float(size), sums), idle)
    stepper = Stepper(parameters, setting)
    stepper.step(step)
    return Round([], sums.means(setting.group, curves) | {"gradient_norm": stepper.norms[0]})
