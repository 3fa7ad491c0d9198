"""Has an arm begun to return less than it did? Its returns in this step against its own earlier ones of the rollout.

The loss is how many more of the episodes return at most b, for the worst b of the histogram: a one-sided
Kolmogorov-Smirnov distance. It counts when it is certain at all looks, bounds and steps at once, at the share of the
error budget that a single test has (sequential/interval.py). The world changes too, and then stable loses at the same
time: what stable seems to have lost is taken off. That is extra care and no part of the certainty.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from learnloop_api.kinds.rollouts.analysis import MetricThreshold
from learnloop_operator.rollout.evidence.arm_evidence import (
    ArmEvidence,
    Check,
    Drift,
    Verdict,
    count,
    hold,
    number,
)
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.difference import difference_evidence
from learnloop_operator.statistics.latency import Histogram, finite_bounds, total


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
    bar = math.log(len(losses) / alpha)
    if any(_evidence(arm, loss, metric.max) >= bar for loss in losses if loss.own > metric.max):
        beside = f", of stable's by {worst.stable:.0%}" if total(control.now) > 0.0 else ""
        text = f"{numbers}{beside} over {count(int(total(arm.now)))}; certainly more than {number(metric.max)}"
        return Check(Verdict.BREACH, f"{text} (bar {1.0 - alpha:.6g})")
    return Check(Verdict.PASS, f"{numbers}, not certainly more than {number(metric.max)}")


def _losses(arm: Drift, control: Drift) -> Iterator[Loss]:
    for bound in finite_bounds(arm.now):
        if bound in arm.before:
            moved = max(0.0, _share(control.now, bound) - _share(control.before, bound)) if _both(control) else 0.0
            yield Loss(bound, _share(arm.before, bound), _share(arm.now, bound), moved)


def _evidence(arm: Drift, loss: Loss, most: float) -> float:
    """Log e-value against "the arm has lost no more than `most` and what stable lost"."""
    return difference_evidence(_counts(arm.now, loss.bound), _counts(arm.before, loss.bound), most + loss.stable)


def _counts(histogram: Histogram, bound: float) -> Counts:
    return Counts(total(histogram), histogram[bound])


def _share(histogram: Histogram, bound: float) -> float:
    return histogram.get(bound, 0.0) / total(histogram)


def _both(control: Drift) -> bool:
    return total(control.now) > 0.0 and total(control.before) > 0.0
