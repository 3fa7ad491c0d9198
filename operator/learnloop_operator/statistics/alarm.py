"""Has a share risen above its bar, whenever that began? An alarm that may be looked at at any time.

Outcomes lie in 0..1, 1 being bad. The null says that each of them, given all before it, is at most the bar q on
average. A bet p > q multiplies its stake by (p/q)^bad ((1-p)/(1-q))^(n-bad) with every batch: under the null that is
at most 1 on average (linear in the outcome and 1 at q; fractions of an outcome as in `e_values`), and the mean may
drift as it likes below the bar.

A model that was fine for an hour must not have to lose an hour's credit first. So a new stake of 1/(t (t+1)) is set at
every moment t: R(t) = (R(t-1) + 1/(t (t+1))) L(t), one number per bet. The stakes of all moments sum to 1, and what is
not set yet lies idle. So R never exceeds a mixture of e-processes over all beginnings. It passes 1/alpha with a chance
of at most alpha (Ville), however often one looks. (An e-detector of Shin, Ramdas and Rinaldo, arXiv 2203.03532, with
stakes that sum to 1: it bounds the chance of any false alarm, not the time between them.)
"""

import math
from dataclasses import dataclass, replace

from learnloop_operator.statistics.e_values import NONE, Counts, gain

BETS = (0.1, 0.25, 0.5, 0.95)
"""Shares bet on, as parts of the way from the bar to 1: nothing below the first is gross."""
LOWEST_BAR = 0.01
"""A bar of 0 would make one bad outcome infinite evidence."""
NOTHING = (-math.inf,) * len(BETS)


@dataclass(frozen=True, slots=True)
class Alarm:
    """The logarithm of what each bet is worth, and the outcomes since it was last worth less than its stakes."""

    worth: tuple[float, ...] = NOTHING
    moment: int = 0
    """The last moment that a stake was set at."""
    recent: Counts = NONE
    """Outcomes since the evidence last was below 1: what a sentence about it should speak of."""

    @property
    def evidence(self) -> float:
        """Log e-value: the bets share the budget evenly."""
        return _log_sum(self.worth) - math.log(len(self.worth))


def updated(alarm: Alarm, batch: Counts, bar: float, moment: int) -> Alarm:
    """The alarm after `batch` (its total: how many were bad), at `moment` >= 1.

    Impossible batches change nothing. A moment pays its stake once: time that stands still or runs back adds none.
    """
    if not batch.possible or batch.n <= 0.0 or bar >= 1.0:
        return alarm
    q = max(bar, LOWEST_BAR)
    stake = -math.log(moment) - math.log(moment + 1) if moment > alarm.moment else -math.inf
    worth = tuple(
        _log_sum((before, stake)) + gain(batch, q + (1.0 - q) * bet, q)
        for before, bet in zip(alarm.worth, BETS, strict=True)
    )
    recorded = alarm.recent if alarm.evidence > 0.0 else NONE
    return replace(alarm, worth=worth, moment=max(moment, alarm.moment), recent=recorded.plus(batch))


def _log_sum(logs: tuple[float, ...]) -> float:
    top = max(logs)
    return top if math.isinf(top) else top + math.log(sum(math.exp(item - top) for item in logs))
