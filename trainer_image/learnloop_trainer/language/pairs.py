"""Pairs of answers: those held out, and one update on the others."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from learnloop_api.kinds.training.algorithms import Parameters
from learnloop_environments.errors import ConfigError
from learnloop_trainer.language.learning import Round, Setting, Stepper, Sums
from learnloop_trainer.language.rows import Episode, Pair, batched_pairs

LEAST = 10
"""Pairs on either side: of fewer, no accuracy says anything."""


@dataclass(frozen=True, slots=True)
class Divided:
    """Pairs to learn from, pairs that are held out, and a SHA-256 over the latter."""

    learned: Sequence[Pair]
    held_out: Sequence[Pair]
    sha256: str


def divided(pairs: Sequence[Pair], share: float, seed: int) -> Divided:
    """`share` of the pairs is held out, the same ones for the same pairs and seed whatever their order.

    Two answers that several people compared are on one side, whichever they preferred. Raises ConfigError for too few.
    """
    keyed = [(_key(pair, seed), pair) for pair in pairs if pair.chosen.sampled and pair.rejected.sampled]
    keys = sorted({key for key, _ in keyed})
    away = set(keys[: round(share * len(keys))])
    learned = [pair for key, pair in keyed if key not in away]
    held_out = [pair for key, pair in keyed if key in away]
    if min(len(learned), len(held_out)) < LEAST:
        problem = (
            f"has {len(learned)} preferences to learn from and {len(held_out)} held out, {LEAST} are needed of each"
        )
        raise ConfigError("spec.data", "", problem, "collect more by POST /api/v1/preferences")
    return Divided(learned, held_out, hashlib.sha256("".join(sorted(away)).encode()).hexdigest())


def _key(pair: Pair, seed: int) -> str:
    both = sorted((_digest(pair.chosen), _digest(pair.rejected)))
    return hashlib.sha256(f"{seed} {both[0]} {both[1]}".encode()).hexdigest()


def _digest(answer: Episode) -> str:
    found = hashlib.sha256()
    for row in answer.rows:
        found.update(len(row.ids).to_bytes(8, "big") + row.ids.astype("<i8").tobytes() + row.sampled.tobytes())
    return found.hexdigest()


Backward = Callable[[Sequence[Pair], float, Sums], None]
"""Adds the gradient of some pairs, each weighed by one of so many, and notes what they looked like."""


def updated(
    parameters: Parameters,
    setting: Setting,
    drawn: Sequence[Pair],
    step: int,
    backward: Backward,
    curves: Sequence[str],
) -> Round:
    """Learn from `drawn`, the batch of all ranks, of which this one takes its share; `step` is that before it."""
    size = parameters.batch_pairs
    share = setting.group.place.share(size)
    sums = Sums()
    for pairs in batched_pairs(drawn[share.start : share.stop], parameters.tokens_per_batch):
        backward(pairs, float(size), sums)
    stepper = Stepper(parameters, setting)
    stepper.step(step)
    return Round([], sums.means(setting.group, curves) | {"gradient_norm": stepper.norms[0]})
