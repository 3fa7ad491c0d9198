"""The fast lane's alarms, in thousands: how often they are false at the very bar, and how soon they are right."""

import math

import numpy as np

from bench.statistics.evidence import Floats
from learnloop_operator.rollout.checks.error_budget import FAST_LANE
from learnloop_operator.statistics.alarm import BETS, Alarm, updated
from learnloop_operator.statistics.e_values import Counts

BAR, ALPHA, BOUNDS = 0.05, 0.01, 2
"""maxRequestErrors and errors max, as they are by default."""
NEEDED = math.log(BOUNDS / (FAST_LANE * ALPHA))


class Alarms:
    """The product's alarm, one column for each rollout."""

    def __init__(self, rollouts: int) -> None:
        self.worth = np.full((len(BETS), rollouts), -np.inf)
        self._moment = 0
        self._up = np.array([math.log((BAR + (1 - BAR) * bet) / BAR) for bet in BETS])[:, None]
        self._down = np.log1p(-np.array(BETS))[:, None]

    def hear(self, n: Floats, bad: Floats, moment: int) -> None:
        """One batch for every rollout, at `moment`."""
        stake = -math.log(moment) - math.log(moment + 1) if moment > self._moment else -math.inf
        self._moment = moment
        self.worth = np.logaddexp(self.worth, stake) + bad * self._up + (n - bad) * self._down

    @property
    def evidence(self) -> Floats:
        """Log e-values."""
        mixture: Floats = np.logaddexp.reduce(self.worth, axis=0) - math.log(len(BETS))
        return mixture


def false_rollbacks(rollouts: int, seconds: int, per_second: int, seed: int) -> float:
    """Share of rollouts rolled back although both their bounds hold, exactly: each looks once a second."""
    source, fired = np.random.default_rng(seed), np.zeros(rollouts, bool)
    for _ in range(BOUNDS):
        alarms = Alarms(rollouts)
        for moment in range(1, seconds + 1):
            alarms.hear(
                np.full(rollouts, float(per_second)), source.binomial(per_second, BAR, rollouts).astype(float), moment
            )
            fired |= alarms.evidence >= NEEDED
    return float(fired.mean())


def requests_until_right(rollouts: int, good_seconds: int, per_second: int, share: float, seed: int) -> Floats:
    """Requests from the first one that may fail until the alarm, after a long time without any failure."""
    source, alarms = np.random.default_rng(seed), Alarms(rollouts)
    nothing, n = np.zeros(rollouts), np.full(rollouts, float(per_second))
    for moment in range(1, good_seconds + 1):
        alarms.hear(n, nothing, moment)
    needed, total = np.full(rollouts, np.inf), 0
    while np.isinf(needed).any():
        total += 1
        failed = source.binomial(1, share, rollouts).astype(float)
        alarms.hear(np.ones(rollouts), failed, good_seconds + 1 + total // per_second)
        needed[np.isinf(needed) & (alarms.evidence >= NEEDED)] = total
    return needed


def difference(looks: int, seed: int) -> float:
    """The largest difference from the operator's own code over one rollout."""
    source, alarms, own, worst = np.random.default_rng(seed), Alarms(1), Alarm(), 0.0
    for moment in range(1, looks + 1):
        bad = float(source.binomial(7, 0.1))
        alarms.hear(np.array([7.0]), np.array([bad]), moment)
        own = updated(own, Counts(7.0, bad), BAR, moment)
        worst = max(worst, abs(own.evidence - float(alarms.evidence[0])))
    return worst
