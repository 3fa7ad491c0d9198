"""Latency as a rate: the share of requests at least as fast as stable's own quantile.

Where a quantile of the canary is above the same quantile of stable, more than the usual share of the canary's requests
is slower than stable's quantile. Counting those needs no assumption about the shape of either distribution. A histogram
counts them exactly at the bounds of its buckets. How much slower they are it does not say, nor whether requests have
become slower between two bounds.

Requests are not independent: those of one episode meet the same pod, the same caller and the same pause. A block of
requests, as many as an average episode has, therefore counts as one outcome. With e-values e_1 .. e_k of the k requests
of a block, whatever their dependence, (e_1 ... e_k)^(1/k) <= (e_1 + ... + e_k) / k: dividing the counts by k keeps the
expectation at most 1 under the null, and for independent requests costs power only.
"""

import math
from collections.abc import Mapping

from learnloop_operator.statistics.e_values import Counts

Histogram = Mapping[float, float]
"""Requests (or episodes) no larger than each bound; the bound infinity counts all of them."""


def total(histogram: Histogram) -> float:
    """All that were counted; 0 for an empty histogram."""
    return histogram.get(math.inf, 0.0)


def finite_bounds(histogram: Histogram) -> list[float]:
    """The bounds in rising order, infinity left out."""
    return sorted(bound for bound in histogram if math.isfinite(bound))


def bound_of(stable: Histogram, quantile: float) -> float | None:
    """The smallest finite bound that holds the share `quantile` of stable's requests; None without any request.

    Choose it once, before the comparison begins, from requests that are not compared.
    """
    requests, finite = total(stable), finite_bounds(stable)
    if not requests > 0.0 or not finite:
        return None
    return next((bound for bound in finite if stable[bound] >= quantile * requests), finite[-1])


def prompt(arm: Histogram, bound: float) -> Counts | None:
    """The arm's requests, and how many of them were no slower than `bound`; None where the histogram cannot tell."""
    requests, within = arm.get(math.inf), arm.get(bound)
    if requests is None or within is None:
        return None
    return Counts(requests, within)


def nearest_bound(histogram: Histogram, limit: float, low: bool) -> float | None:
    """The last finite bound up to `limit` (`low`), or the first one from it on; None where there is none."""
    bounds = finite_bounds(histogram)
    if low:
        return next((bound for bound in reversed(bounds) if bound <= limit), None)
    return next((bound for bound in bounds if bound >= limit), None)


def quantile_of(arm: Histogram, quantile: float) -> float | None:
    """The quantile by linear interpolation within its bucket, as Prometheus' `histogram_quantile` has it for bounds
    above 0; the last finite bound where it lies beyond. None without any request."""
    requests, finite = total(arm), finite_bounds(arm)
    if not requests > 0.0 or not finite:
        return None
    rank, below, count = quantile * requests, 0.0, 0.0
    for bound in finite:
        if arm[bound] >= rank:
            inside = arm[bound] - count
            return bound if inside <= 0.0 else below + (bound - below) * (rank - count) / inside
        below, count = bound, arm[bound]
    return finite[-1]
