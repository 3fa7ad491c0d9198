"""Latency as a rate: the share of requests that are no slower than stable's own quantile.

A quantile of the canary above the same quantile of stable means that more than the usual share of the canary's requests
is slower than stable's quantile, and counting those needs no assumption about the shape of either distribution. A
histogram counts them exactly at the bounds of its buckets.
"""

from collections.abc import Mapping

from learnloop_operator.core.sequential.betting import Counts

Histogram = Mapping[float, float]
"""Requests no slower than each bound in seconds; the bound infinity counts all of them."""


def bound_of(stable: Histogram, quantile: float) -> float | None:
    """The smallest finite bound that holds the share `quantile` of stable's requests; None without any request.

    Choose it once, before the comparison begins, from requests that are not compared.
    """
    requests = stable.get(float("inf"), 0.0)
    finite = sorted(bound for bound in stable if bound != float("inf"))
    if not requests > 0.0 or not finite:
        return None
    return next((bound for bound in finite if stable[bound] >= quantile * requests), finite[-1])


def prompt(arm: Histogram, bound: float) -> Counts | None:
    """The arm's requests, and how many of them were no slower than `bound`; None where the histogram cannot tell."""
    requests, within = arm.get(float("inf")), arm.get(bound)
    if requests is None or within is None:
        return None
    return Counts(requests, within)
