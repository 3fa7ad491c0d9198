"""Compares a canary with stable over a rollout: is it worse, and is it certainly not worse than tolerated?

Two e-processes run side by side on the same batches, higher outcomes being better:
- `worse` against "the canary is at least as good as stable": only a canary that really is worse is rolled back, but for
  a share of at most alpha of the rollouts, however often one looks.
- `fine` against "the canary is worse by max_drop or more": only then may a step be passed.
The two nulls exclude each other, so each may use the whole budget. A ratio asks for `worse` alone.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from learnloop_operator.statistics.e_values import NONE, Counts, divergence, log_e, nearest

SHRINK = 20.0
"""Weight of the pooled rate in a bet, in episodes: without it the first bets would follow noise."""
SOUGHT = 2.0
"""The drop to look for first, as a multiple of the one that is tolerated. A bet on it is right from the first batch on
where one on what was seen has to learn it, and pays for that."""
INSISTS = 100.0
"""Weight of that drop in a bet, in episodes of each arm: the more, the sooner such a drop is proven, and the later one
that is much smaller. A wrong guess costs power only."""
RATIO_SOUGHT, RATIO_INSISTS = 0.5, 5.0
"""The same for a ratio, which tolerates no named drop: a canary that makes half of what stable does."""
BATCH = 4.0
GROWTH = 0.04
"""A look that bets needs so many new canary episodes, and this share of those before: the evidence changes, and is
written, some dozens of times a rollout and not at every look."""
CREDIT = 2.0
"""How far (log) `fine` may rise above its bar. Giving wealth away keeps an e-process valid, and a capped lead cannot
hide a canary that turns bad late."""
MOST = 1e7
"""More episodes than this are not worth announcing."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Counts of both arms."""

    canary: Counts = NONE
    stable: Counts = NONE

    def minus(self, other: "Pair") -> "Pair":
        """Counts after `other`."""
        return Pair(self.canary.minus(other.canary), self.stable.minus(other.stable))

    def plus(self, other: "Pair") -> "Pair":
        return Pair(self.canary.plus(other.canary), self.stable.plus(other.stable))


NOTHING = Pair()


@dataclass(frozen=True, slots=True)
class LookMemory:
    """All that has to survive a restart."""

    counted: Pair | None = None
    """Counts of the source at the last look that took anything over; None: the next look starts over."""
    judged: Pair = NOTHING
    """The outcomes the evidence is made of."""
    stable_total: float = 0.0
    """The sum of as many outcomes of stable as the canary's, by stable's mean in each batch."""
    worse: float = 0.0
    """Log e-value of "worse"."""
    fine: float = 0.0
    """Log e-value of "not worse than tolerated"."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Log e-values at which each of the two claims counts as proven."""

    worse: float
    fine: float


@lru_cache(maxsize=1024)
def bars(alpha: float, tests: int = 1) -> Bars:
    """Bars that keep the chance of a wrong action in one rollout below `alpha`.

    A rollback takes one claim out of `tests`, so each gets alpha/tests (union bound). A pass takes all of them, so
    each may use the whole alpha (intersection-union): a canary that must not pass errs on the very test it fails.
    """
    return Bars(math.log(tests / alpha), math.log(1.0 / alpha))


def look(memory: LookMemory, counters: Pair, max_drop: float | None, bar: Bars) -> LookMemory:
    """The memory after a look at counters that now read `counters` (since some fixed moment).

    `max_drop`: the tolerated drop in 0..1; None for a ratio, which is never proven fine.

    The first look takes the counters for the beginning: what stable did alone is not concurrent. Anything impossible
    leaves everything unchanged: NaN, negative counts, more successes than outcomes, and a fall. Counters fall when the
    other one of two Prometheus servers answers, which is a scrape behind; what they count again is bet on once.
    """
    if not (counters.canary.possible and counters.stable.possible):
        return memory
    if memory.counted is None:
        return replace(memory, counted=counters)
    batch = counters.minus(memory.counted)
    enough = max(1.0 if max_drop is None else BATCH, GROWTH * memory.judged.canary.n)
    if not (batch.canary.possible and batch.stable.possible) or batch.canary.n < enough or batch.stable.n < 1.0:
        return memory
    return replace(bet(memory, batch, max_drop, bar), counted=counters)


def bet(memory: LookMemory, batch: Pair, max_drop: float | None, bar: Bars) -> LookMemory:
    """The memory after both tests have bet on `batch` with what they knew before it."""
    canary, stable = feared(memory.judged, max_drop)
    worse = log_e(batch.stable, batch.canary, stable, canary, 0.0)
    canary, stable = expected(memory.judged)
    fine = 0.0 if max_drop is None else log_e(batch.canary, batch.stable, canary, stable, -max_drop)
    return replace(
        memory,
        judged=memory.judged.plus(batch),
        stable_total=memory.stable_total
        + (batch.canary.n * batch.stable.total / batch.stable.n if batch.stable.n > 0.0 else 0.0),
        worse=memory.worse + worse,
        fine=min(memory.fine + fine, bar.fine + CREDIT),
    )


Claim = Literal["fine", "worse", "undecided"]
"""A claim that the evidence has proven, if any."""


def proven(memory: LookMemory, bar: Bars) -> Claim:
    """Worse by less than tolerated is fine: where both claims are proven, what was said to matter decides."""
    if memory.fine >= bar.fine:
        return "fine"
    return "worse" if memory.worse >= bar.worse else "undecided"


def expected(judged: Pair) -> tuple[float, float]:
    """The rates (canary, stable) to bet on: what was seen, drawn towards one common rate. Strictly within 0..1."""
    pool = _pooled(judged)
    return _drawn(judged.canary, pool, SHRINK), _drawn(judged.stable, pool, SHRINK)


def feared(judged: Pair, max_drop: float | None) -> tuple[float, float]:
    """The rates (canary, stable) to bet on against "as good as stable": what was seen, drawn towards the sought drop.

    The two rates drawn to lie that drop apart and are the pooled one on average, so that only the drop is assumed and
    none of the rates. Strictly within 0..1; equal where nothing was seen.
    """
    pool, n = _pooled(judged), judged.canary.n + judged.stable.n
    drop, weight = (RATIO_SOUGHT * pool, RATIO_INSISTS) if max_drop is None else (SOUGHT * max_drop, INSISTS)
    edge = 0.5 / (n + 1.0)
    share = judged.canary.n / n if n > 0.0 else 0.5
    low, high = max(edge, pool - (1.0 - share) * drop), min(1.0 - edge, pool + share * drop)
    return _drawn(judged.canary, low, weight), _drawn(judged.stable, high, weight)


def _pooled(judged: Pair) -> float:
    both = judged.canary.plus(judged.stable)
    return (both.total + 1.0) / (both.n + 2.0)


def _drawn(counts: Counts, rate: float, weight: float) -> float:
    return (counts.total + weight * rate) / (counts.n + weight)


def needed(memory: LookMemory, max_drop: float, bar: Bars, share: float) -> float | None:
    """Canary episodes until the first of the two claims is proven, if the rates stay as they look now.

    `share` is the canary's share of new episodes, 0 < share < 1. None: not in sight. 0: proven already.
    """
    canary, stable = expected(memory.judged)
    ratio = (1.0 - share) / share
    ways = [
        _more(bar.fine - memory.fine, canary, stable, ratio, -max_drop),
        _more(bar.worse - memory.worse, stable, canary, 1.0 / ratio, 0.0, ratio),
    ]
    result = min(ways)
    return math.ceil(result) if result <= MOST else None


def chance(log_evidence: float) -> float:
    """1 minus the always-valid p-value: 0 while the evidence speaks against the claim, 0.99 at e-value 100."""
    return 1.0 - math.exp(-log_evidence) if log_evidence > 0.0 else 0.0


def _more(missing: float, p_a: float, p_b: float, b_per_a: float, margin: float, scale: float = 1.0) -> float:
    """Canary episodes until `missing` is gained; `scale` is outcomes of `a` for each canary episode."""
    if missing <= 0.0:
        return 0.0
    if p_a <= p_b + margin:
        return math.inf
    q_a, q_b = nearest(1.0, b_per_a, p_a, p_b, margin)
    growth = scale * (divergence(p_a, q_a) + b_per_a * divergence(p_b, q_b))
    return missing / growth if growth > 0.0 else math.inf
