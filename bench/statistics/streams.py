"""Outcomes that are not successes: returns, and latencies whose requests hang together."""

import numpy as np
from numpy.typing import NDArray

from bench.statistics.evidence import Floats
from bench.statistics.rollouts import Draw

REQUESTS = 10
"""Requests of an episode."""
TOGETHER = 0.5
"""Share of the episodes whose requests all are prompt or all are slow: one pause meets all of them."""


def returns(source: np.random.Generator, n: NDArray[np.int64], mean: Floats) -> Floats:
    """Returns of 0, a half and 1 of their range."""
    return source.binomial(2 * n, mean) / 2.0


def prompt_requests(counted_as: float) -> Draw:
    """Prompt requests, so many of which count as one outcome. At REQUESTS an episode is one outcome, at 1 each request
    is, and `n` episodes then are ten times as many outcomes."""

    def draw(source: np.random.Generator, n: NDArray[np.int64], mean: Floats) -> Floats:
        whole = source.binomial(n, TOGETHER)
        requests = REQUESTS * source.binomial(whole, mean) + source.binomial(REQUESTS * (n - whole), mean)
        return np.asarray(requests / counted_as)

    return draw
