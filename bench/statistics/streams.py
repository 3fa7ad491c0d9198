"""Outcomes that are not successes: returns, latencies whose requests hang together, and returns that drift."""

from math import inf

import numpy as np
from numpy.typing import NDArray

from bench.statistics.evidence import Floats
from bench.statistics.rollouts import ALPHA, Draw
from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.rollout.checks.return_drift import drift
from learnloop_operator.rollout.evidence.arm_evidence import ArmEvidence, Drift, Verdict

REQUESTS = 10
"""Requests of an episode."""
TOGETHER = 0.5
"""Share of the episodes whose requests all are prompt or all are slow: one pause meets all of them."""
RETURNS = np.array([0.0, 5.0, 10.0, 50.0, 100.0])
"""Bounds of the drift stream's histogram."""
STEP = 1_000
"""Episodes that the arm played in its earlier steps, and plays in this one."""


def returns(source: np.random.Generator, n: NDArray[np.int64], mean: Floats) -> Floats:
    """Returns of 0, a half and 1 of their range."""
    return source.binomial(2 * n, mean) / 2.0


def prompt_requests(counted_as: float) -> Draw:
    """Prompt requests, so many of which count as one outcome. At REQUESTS an episode is one outcome, at 1 each request
    is, and `n` episodes then are ten times as many outcomes."""

    def draw(source: np.random.Generator, n: NDArray[np.int64], mean: Floats) -> Floats:
        whole = source.binomial(n, TOGETHER)
        found = REQUESTS * source.binomial(whole, mean) + source.binomial(REQUESTS * (n - whole), mean)
        return np.asarray(found / counted_as)

    return draw


def drifting(rollouts: int, low_before: float, low_now: float, seed: int) -> tuple[float, float]:
    """The share of steps in which a drift check at max 0.2 speaks, looked at every 10 episodes, and the median number
    of episodes after which it does. `low_…`: the share of episodes that return at most 10. Stable does not drift."""
    source = np.random.default_rng(seed)
    metric = MetricThreshold.model_validate({"name": "drift", "type": "drift", "max": 0.2, "minEpisodes": 50})
    spoke = [at for _ in range(rollouts) if (at := _spoke_at(source, metric, low_before, low_now))]
    return len(spoke) / rollouts, float(np.median(spoke)) if spoke else inf


def _spoke_at(source: np.random.Generator, metric: MetricThreshold, low_before: float, low_now: float) -> int | None:
    before, now = _returns(source, low_before), _returns(source, low_now)
    control, beside = _returns(source, low_before), _returns(source, low_before)
    for n in range(50, STEP + 1, 10):
        arm = ArmEvidence(STEP + n, drift=Drift(_histogram(before), _histogram(now[:n])))
        stable = ArmEvidence(STEP + n, drift=Drift(_histogram(control), _histogram(beside[:n])))
        if drift(metric, arm, stable, ALPHA / 4.0, "the canary").verdict is Verdict.BREACH:
            return n
    return None


def _returns(source: np.random.Generator, low: float) -> Floats:
    good = source.random(STEP) >= low
    return np.where(good, source.uniform(20.0, 100.0, STEP), source.uniform(0.0, 10.0, STEP))


def _histogram(values: Floats) -> dict[float, float]:
    found = {float(bound): float(np.count_nonzero(values <= bound)) for bound in RETURNS}
    return {**found, inf: float(values.size)}
