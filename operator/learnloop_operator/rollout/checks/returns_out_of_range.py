"""Returns where returnRange says there are none: nothing is proven by them, and nothing passes them.

The tests know the sum of the returns alone. A sum below n times `lowest` proves that one return at least was lower; how
many were, and how the others were, nobody can tell: one of -999 among ninety-nine of 1 adds up to what a hundred of -9
do. To set such a sum to that of n worst returns would claim n bad outcomes where one is proven. No bound on the chance
of a false rollback would be left. So it is no evidence for a test, in either direction.

It is a fact by itself: the mean is lower than the worst that the spec calls possible for one episode. So `lowest` is a
hard bound of its own, as `min` of a threshold is, once minEpisodes have ended and as long as stable keeps to the range.
Where stable does not either, or returns lie above the range, the range is wrong and not the canary: it holds.
"""

from learnloop_api.kinds.rollouts.analysis import MetricThreshold, ReturnRange
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence.arm_evidence import Check, Verdict, count, hold, number
from learnloop_operator.rollout.metrics.registry import type_of
from learnloop_operator.rollout.metrics.return_range import Side, side
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.comparison import Pair


def out_of_range(
    metric: MetricThreshold,
    whole: Pair,
    taken: Pair | None = None,
    subject_is: str = "the canary",
    reference_is: str = "stable",
) -> Check | None:
    """A breach or a hold where the returns of `whole`, or those since the counts `taken` that a test has last bet on,
    lie outside the metric's range; None where they do not. What came last speaks first: an arm that turned bad is not
    covered by what it was before."""
    where = metric.return_range
    if where is None:
        return None
    for pair in (whole.minus(taken), whole) if taken else (whole,):
        ripe = pair.canary.n >= metric.min_episodes
        one, other = side(pair.canary) if ripe else None, side(pair.stable)
        if one is Side.BELOW and other is None and pair.stable.n > 0.0:
            return Check(Verdict.BREACH, _worse(metric, where, pair, subject_is, reference_is), reasons.OUT_OF_RANGE)
        for whose, seen, found in ((subject_is, pair.canary, one), (reference_is, pair.stable, other)):
            if found is not None:
                return hold(_wrong(metric, where, seen, whose), reasons.OUT_OF_RANGE)
    return None


def _worse(metric: MetricThreshold, where: ReturnRange, pair: Pair, subject_is: str, reference_is: str) -> str:
    said = (
        f"{type_of(metric).noun(metric)} of {subject_is} {_mean(where, pair.canary)} over {count(int(pair.canary.n))}"
    )
    against = f"vs {_mean(where, pair.stable)} of {reference_is}"
    return f"{said} {against}: lower than any single return of returnRange {where.lowest:g}..{where.highest:g} may be"


def _wrong(metric: MetricThreshold, where: ReturnRange, seen: Counts, whose: str) -> str:
    said = f"{type_of(metric).noun(metric)} of {whose} {_mean(where, seen)} over {count(int(seen.n))}"
    return (
        f"{said} lies outside returnRange {where.lowest:g}..{where.highest:g} and is no evidence: "
        f"set returnRange of the metric {metric.name} to where all returns lie"
    )


def _mean(where: ReturnRange, seen: Counts) -> str:
    return number(where.lowest + seen.total / seen.n * (where.highest - where.lowest))
