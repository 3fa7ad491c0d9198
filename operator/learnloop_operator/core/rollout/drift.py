"""Has an arm begun to return less than it did? Its returns in this step against its own earlier ones of the rollout.

The world changes too, and then stable loses at the same time: what stable lost is taken off. The loss is how many more
of the episodes return at most b, for the worst b of the histogram: a one-sided Kolmogorov-Smirnov distance. It counts
when it is certain: the shares at every bound lie in confidence sequences (sequential/interval.py) that hold at all
looks at once, for all bounds, arms and steps together, at the share of the error budget that a single test has.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from learnloop_api.kinds.analysis import MetricThreshold
from learnloop_operator.core.rollout.evidence import ArmEvidence, Check, Drift, Verdict, count, hold, number
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.core.sequential.interval import mean_interval
from learnloop_operator.core.sequential.latency import Histogram, finite_bounds, total


@dataclass(frozen=True, slots=True)
class Loss:
    """At one bound: the share of the arm's episodes that return at most that, earlier and now."""

    bound: float
    before: float
    now: float
    stable: float
    """How much of it stable lost too."""

    @property
    def own(self) -> float:
        """What is left for the arm itself."""
        return self.now - self.before - self.stable


def drift(
    metric: MetricThreshold, subject: ArmEvidence | None, reference: ArmEvidence | None, alpha: float, subject_is: str
) -> Check:
    """PASS unless more than metric.max is certain at `alpha`; HOLD while either time is too short to tell.

    `reference` is stable as it serves at the same time, or None where nothing serves beside the arm.
    """
    arm = subject.drift if subject else None
    if arm is None:
        return hold(f"{metric.name}: the returns of {subject_is} are not known, its pods do not count them yet")
    known = min(total(arm.before), total(arm.now))
    if known < metric.min_episodes:
        short = "in this step" if total(arm.now) <= total(arm.before) else "before this step"
        return hold(f"{metric.name}: {subject_is} has {known:.0f} of {metric.min_episodes} episodes needed {short}")
    control = reference.drift if reference and reference.drift else Drift()
    losses = list(_losses(arm, control))
    if not losses:
        return hold(f"{metric.name}: the returns of {subject_is} came in buckets that do not match")
    assert metric.max is not None, "the API server refuses a drift check without max"
    worst = max(losses, key=lambda loss: loss.own)
    numbers = (
        f"{metric.name}: returns of {subject_is} at or below {number(worst.bound)} went from {worst.before:.0%} of its "
        f"episodes to {worst.now:.0%}"
    )
    each = alpha / (4.0 * len(losses))
    if any(loss.own > metric.max and _certain(arm, control, loss.bound, each) > metric.max for loss in losses):
        beside = f", of stable's by {worst.stable:.0%}" if total(control.now) > 0.0 else ""
        text = f"{numbers}{beside} over {count(int(total(arm.now)))}; certainly more than {number(metric.max)}"
        return Check(Verdict.BREACH, f"{text} (bar {1.0 - alpha:.6g})")
    return Check(Verdict.PASS, f"{numbers}, not certainly more than {number(metric.max)}")


def _losses(arm: Drift, control: Drift) -> Iterator[Loss]:
    for bound in finite_bounds(arm.now):
        if bound in arm.before:
            moved = max(0.0, _share(control.now, bound) - _share(control.before, bound)) if _both(control) else 0.0
            yield Loss(bound, _share(arm.before, bound), _share(arm.now, bound), moved)


def _certain(arm: Drift, control: Drift, bound: float, alpha: float) -> float:
    """The least loss at `bound` that four confidence sequences, each at `alpha`, leave possible."""
    least = _interval(arm.now, bound, alpha)[0] - _interval(arm.before, bound, alpha)[1]
    if not _both(control):
        return least
    most = _interval(control.now, bound, alpha)[1] - _interval(control.before, bound, alpha)[0]
    return least - max(0.0, most)


def _interval(histogram: Histogram, bound: float, alpha: float) -> tuple[float, float]:
    return mean_interval(Counts(total(histogram), histogram.get(bound, math.nan)), alpha)


def _share(histogram: Histogram, bound: float) -> float:
    return histogram.get(bound, 0.0) / total(histogram)


def _both(control: Drift) -> bool:
    return total(control.now) > 0.0 and total(control.before) > 0.0
