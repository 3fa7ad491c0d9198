"""Is one arm beyond a bar that moves with the other arm's mean, as both are at the same time?

Higher and lower each have an e-process, on batches of outcomes in 0..1 that both arms had at the same time. The bar is
`base + (ratio - 1) |base|` for the other arm's mean `base`: one or two straight lines. A bet names two means before the
batch is seen and is set against the nearest point of each line, as in `betting`: the null on its far side is convex, so
the proof there holds. Where two lines bound the null the batch counts for the one that gains less, which is an e-value
against either. Nothing is assumed of the means but that each batch is within the null: the world may change between
two batches as it likes, for both arms.

The bet: stable's mean as it has been lately, and the canary's as far from it, in log odds, as it was in all batches so
far. So a world that changes does not have to be learned again, and what was seen of the two arms is not forgotten. The
first bets are on an arm half way between the bar and the worst. An arm that looks to be within its bar gets only a
small part of each stake. That part stays on it, so that one which turns bad immediately is not missed.
"""

import math
from dataclasses import dataclass

from learnloop_operator.statistics.betting import BISECTIONS, Counts, gain

FIRST = 2.0
"""Weight, in episodes, of an arm half way beyond the bar: what the first bets are on."""
HALF = 0.5
SPARED = 0.02
"""Part of each stake that is on an arm half way beyond the bar, whatever was seen."""
LATELY = 50.0
"""Episodes of stable that its mean of lately is mostly made of."""
EDGE = 1e-9
"""Means nearer to 0 and 1 than this are not bet on."""

Line = tuple[float, float]
"""rise and base: the subject's mean is `base + rise * reference's mean`."""


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity of both arms over all batches of the same time, and the evidence of it."""

    n: float = 0.0
    """Outcomes of the subject that were compared."""
    total: float = 0.0
    """Their sum."""
    beside: float = 0.0
    """What as many outcomes of the reference would have added up to, by its mean of each batch."""
    level: float = 0.0
    """The reference's mean lately."""
    low: float = 0.0
    """Log e-value of "below the bar"."""
    high: float = 0.0
    """Log e-value of "above the bar"."""

    @property
    def possible(self) -> bool:
        """Whether every number is one."""
        return all(map(math.isfinite, (self.n, self.total, self.beside, self.level, self.low, self.high)))


@dataclass(frozen=True, slots=True)
class Bar:
    """`ratio` times the reference, in units of its size; outcomes 0..1 stand for values from `start` to `end`."""

    ratio: float
    start: float = 0.0
    end: float = 1.0

    def at(self, mean: float) -> float:
        """The bar in 0..1, or beyond it, for a reference whose mean is `mean`."""
        width = self.end - self.start
        base = self.start + mean * width
        return (base + (self.ratio - 1.0) * abs(base) - self.start) / width

    def lines(self) -> list[Line]:
        """The straight lines that the bar is made of."""
        rises = [self.ratio] if self.end > 0.0 else []
        rises += [2.0 - self.ratio] if self.start < 0.0 else []
        return [(rise, (rise - 1.0) * self.start / (self.end - self.start)) for rise in dict.fromkeys(rises)]


LEVEL = Bar(1.0)
"""No ratio: lower, or higher, than the reference."""


def added(row: Row, a: Counts, b: Counts, low: float = 0.0, high: float = 0.0) -> Row:
    """The row with one batch's outcomes of the subject, `a`, and of the reference, `b`; both have some. The batch gave
    the log e-values `low` and `high`."""
    mean = b.total / b.n
    return Row(
        n=row.n + a.n,
        total=row.total + a.total,
        beside=row.beside + a.n * mean,
        level=row.level + b.n / (b.n + LATELY) * (mean - row.level),
        low=row.low + low,
        high=row.high + high,
    )


def after(row: Row, a: Counts, b: Counts, lowest: Bar | None, highest: Bar | None) -> Row:
    """The row after both bets on a batch, each made with what was known before it; None: nothing is asked there."""
    low = _log_e(row, a, b, lowest, True) if lowest else 0.0
    high = _log_e(row, a, b, highest, False) if highest else 0.0
    return added(row, a, b, low, high)


def _log_e(row: Row, a: Counts, b: Counts, bar: Bar, low: bool) -> float:
    edge = 0.5 / (row.n + LATELY)
    level, stable = _within(row.level, edge), _within(row.beside / row.n if row.n > 0.0 else row.level, edge)
    subject = _within((row.total + FIRST * _sought(bar, stable, low)) / (row.n + FIRST), EDGE)
    moved = _odds(level) + _odds(subject) - _odds(stable)
    counted = _gain(a, b, _within(1.0 / (1.0 + math.exp(-moved)), EDGE), level, bar, low)
    gross = _gain(a, b, _sought(bar, level, low), level, bar, low)
    top = max(counted, gross)
    return top + math.log((1.0 - SPARED) * math.exp(counted - top) + SPARED * math.exp(gross - top))


def _sought(bar: Bar, mean: float, low: bool) -> float:
    limit = _within(bar.at(mean), EDGE)
    return _within(HALF * limit if low else 1.0 - HALF * (1.0 - limit), EDGE)


def _gain(a: Counts, b: Counts, p_a: float, p_b: float, bar: Bar, low: bool) -> float:
    """Log e-value of one bet; 0 where it is not beyond the bar."""
    if not (p_a < bar.at(p_b) if low else p_a > bar.at(p_b)):
        return 0.0
    gains = []
    for line in bar.lines():
        nearest = _nearest(a.n, b.n, p_a, p_b, line)
        gains.append(0.0 if nearest is None else gain(a, p_a, nearest[0]) + gain(b, p_b, nearest[1]))
    return min(gains)


def _nearest(n_a: float, n_b: float, p_a: float, p_b: float, line: Line) -> tuple[float, float] | None:
    """The point of the line with the least `n_a KL(p_a|q_a) + n_b KL(p_b|q_b)`; None where none is within 0..1. The
    derivative along the line rises, so halving finds its only zero; where the line begins at 0 a formula does."""
    rise, base = line
    if base == 0.0 and rise > 0.0:
        return _on_ray(n_a, n_b, p_a, p_b, rise)
    low, high = EDGE, 1.0 - EDGE
    if rise:
        ends = sorted(((EDGE - base) / rise, (1.0 - EDGE - base) / rise))
        low, high = max(low, ends[0]), min(high, ends[1])
    if low >= high or not (rise or 0.0 < base < 1.0):
        return None
    for _ in range(BISECTIONS):
        q = 0.5 * (low + high)
        up = _within(base + rise * q, EDGE)
        if n_a * rise * (up - p_a) / (up * (1.0 - up)) + n_b * (q - p_b) / (q * (1.0 - q)) > 0.0:
            high = q
        else:
            low = q
    q = 0.5 * (low + high)
    return _within(base + rise * q, EDGE), q


def _on_ray(n_a: float, n_b: float, p_a: float, p_b: float, rise: float) -> tuple[float, float]:
    """The same for `q_a = rise * q_b`. Times `q_b (1 - q_a) (1 - q_b)` the derivative is a quadratic, and the lesser of
    its zeros lies within 0..1. `past` is its slope where q_b is 1: with it there are but sums under the root."""
    if rise > 1.0:
        q_b, q_a = _on_ray(n_b, n_a, p_b, p_a, 1.0 / rise)
        return q_a, q_b
    middle = n_a * (rise + p_a) + n_b * (1.0 + rise * p_b)
    past = n_a * (p_a - rise) + n_b * ((1.0 - rise) - rise * (1.0 - p_b))
    root = math.sqrt(past * past + 4.0 * rise * (n_a + n_b) * n_b * (1.0 - rise) * (1.0 - p_b))
    q = _within(2.0 * (n_a * p_a + n_b * p_b) / (middle + root), EDGE)
    return _within(rise * q, EDGE), q


def _odds(mean: float) -> float:
    return math.log(mean / (1.0 - mean))


def _within(mean: float, edge: float) -> float:
    return min(1.0 - edge, max(edge, mean))
