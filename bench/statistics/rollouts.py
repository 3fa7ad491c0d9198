"""Whole rollouts, in thousands: episodes arrive, the evidence is looked at every second, the weight moves."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bench.statistics.evidence import CANARY_N, Bools, Feared, Floats, Memories, feared, look
from bench.statistics.ttest import significant
from learnloop_operator.statistics.canary_against_stable import (
    Bars,
    LookMemory,
    Pair,
    bars,
    look as product_look,
    proven,
)
from learnloop_operator.statistics.e_values import Counts

WEIGHTS = np.array([0.10, 0.25, 0.50, 1.00])
MIN_EPISODES = 20.0
PER_SECOND = 20
ALPHA = 0.01


Draw = Callable[[np.random.Generator, NDArray[np.int64], Floats], Floats]
"""The sums of so many outcomes with these means."""


def successes(source: np.random.Generator, n: NDArray[np.int64], mean: Floats) -> Floats:
    """Outcomes that are 0 or 1."""
    return source.binomial(n, mean).astype(float)


@dataclass(slots=True)
class Outcome:
    """The outcome of each rollout; episodes are the canary's own when it was decided, infinity if it was not."""

    rolled_back_at: Floats
    promoted: Bools
    ttest_fired: Bools
    ttest_rolled_back_at: Floats
    looks: int
    paths: list[list[tuple[Floats, bool, float, float]]] = field(default_factory=list)

    @property
    def rolled_back(self) -> Bools:
        return np.isfinite(self.rolled_back_at)


def simulate(
    canary: Floats,
    stable: Floats,
    *,
    max_drop: float,
    seconds: int,
    seed: int,
    climbs: bool = True,
    record: int = 0,
    draw: Draw = successes,
    fear: Feared = feared,
    world: Callable[[int], float] = lambda _: 1.0,
) -> Outcome:
    """One rollout for each pair of success rates, looked at every second for `seconds` seconds at the most.

    `climbs`: steps are passed as the operator does; without it the canary stays at the first step forever, which gives
    false alarms the longest time to happen. `draw` makes the outcomes; the t-test is meant for 0 and 1. `fear`
    is what is bet on against "as good as stable", the operator's own bet when left out. `world` is what the means of
    both arms are multiplied with in each second. The paths of the first
    `record` rollouts are kept for `agreement`.
    """
    rollouts, source, bar = canary.size, np.random.default_rng(seed), bars(ALPHA)
    memories, counts = Memories.fresh(rollouts), np.zeros((4, rollouts))
    step, base = np.zeros(rollouts, dtype=int), np.zeros(rollouts)
    never = np.full(rollouts, np.inf)
    result = Outcome(never, np.zeros(rollouts, bool), np.zeros(rollouts, bool), never.copy(), 0)
    result.paths = [[] for _ in range(record)]
    for second in range(seconds):
        running = ~(result.rolled_back | result.promoted)
        if not running.any():
            break
        weight = WEIGHTS[step]
        _play(source, counts, weight, canary * world(second), stable * world(second), running, draw)
        concurrent = running & (weight < 1.0)
        look(memories, counts, max_drop, bar, concurrent, fear)
        result.looks += int(running.sum())
        _poll(result, counts, running)
        for index, path in enumerate(result.paths):
            if running[index]:
                now = (counts[:, index].copy(), bool(concurrent[index]))
                path.append((*now, float(memories.worse[index]), float(memories.fine[index])))
        fine, worse = memories.fine >= bar.fine, memories.worse >= bar.worse
        _note(result.rolled_back_at, running & worse & ~fine, counts)
        if climbs:
            passed = running & fine & (counts[CANARY_N] - base >= MIN_EPISODES)
            result.promoted |= passed & (step == WEIGHTS.size - 1)
            base = np.where(passed, counts[CANARY_N], base)
            step = np.minimum(step + passed, WEIGHTS.size - 1)
    return result


def _play(
    source: np.random.Generator, counts: Floats, weight: Floats, canary: Floats, stable: Floats, on: Bools, draw: Draw
) -> None:
    canary_n = source.binomial(PER_SECOND, weight) * on
    other = (PER_SECOND - canary_n) * on
    counts += np.stack([canary_n, draw(source, canary_n, canary), other, draw(source, other, stable)])


def _poll(result: Outcome, counts: Floats, running: Bools) -> None:
    fires, against = significant(counts, MIN_EPISODES)
    result.ttest_fired |= fires & running
    _note(result.ttest_rolled_back_at, against & running & np.isinf(result.ttest_rolled_back_at), counts)


def _note(at: Floats, where: Bools, counts: Floats) -> None:
    at[where] = counts[CANARY_N][where]


def agreement(result: Outcome, max_drop: float) -> tuple[int, float]:
    """Replays the recorded rollouts through the operator's own code: looks compared, and the largest difference of
    any log e-value. A different verdict is an AssertionError."""
    bar: Bars = bars(ALPHA)
    looks, worst = 0, 0.0
    for index, path in enumerate(result.paths):
        memory, verdict = LookMemory(Pair()), "undecided"
        for (canary_n, canary, stable_n, stable), concurrent, worse, fine in path:
            pair = Pair(Counts(canary_n, canary), Counts(stable_n, stable))
            memory = product_look(memory, pair, max_drop, bar) if concurrent else replace(memory, counted=None)
            worst = max(worst, abs(memory.worse - worse), abs(memory.fine - fine))
            verdict = proven(memory, bar)
            looks += 1
        assert (verdict == "worse") == bool(result.rolled_back[index]), f"rollout {index}: {verdict}"
    return looks, worst
