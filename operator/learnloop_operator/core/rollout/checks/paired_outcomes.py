"""What a ratio remembers: both arms' outcomes of the same times, and the evidence that they gave.

A batch is what both arms finished between two looks at one weight. An episode counts when it ends, in the arm that it
was opened on, and of the first ones that an arm gets at a weight the short ones end first, of those that stable got
before it the long ones last. So nothing is compared until minEpisodes of the canary have ended at the weight of now, no
batch reaches over a change of it, and there is none while only one arm gets episodes.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from learnloop_api.kinds.analysis import Analysis, MetricThreshold
from learnloop_operator.core.rollout.checks.dry_run_metrics import bounds_text
from learnloop_operator.core.rollout.checks.error_budget import is_counted
from learnloop_operator.core.rollout.checks.metric_outcomes import Measure, measure_of, outcomes
from learnloop_operator.core.rollout.evidence.arm_evidence import ArmEvidence, Evidence
from learnloop_operator.core.sequential.betting import Counts
from learnloop_operator.core.sequential.comparison import JITTER
from learnloop_operator.core.sequential.latency import Histogram, finite_bounds, prompt, total
from learnloop_operator.core.sequential.ratio import LEVEL, Bar, Row, added, after
from learnloop_operator.tuning.value_objects import value

GROWTH = 0.04
"""A batch needs so many new outcomes of the canary for each that was compared, and one at least."""
HALF = 0.5

Seen = tuple[tuple[Counts, Counts], ...]
"""What the source had counted of both arms, canary first, of each quantity."""


@value
class Beside:
    """One metric with ratios. `claim`: its bounds in words, so that a changed metric starts over."""

    name: str
    claim: str
    rows: tuple[Row, ...] = ()
    """None before the comparison began. Of returns without a range the first is their sum, which nobody bets on."""
    seen: Seen | None = None
    """As counted at the last look that took anything over; None: the next look begins anew."""
    weight: int = 0
    """The canary's when `start` was counted."""
    start: float = 0.0
    """Episodes of the canary that had ended when its weight became that."""
    bounds: tuple[float, ...] = ()
    """Fixed when the comparison begins: of latency one, in seconds; of returns those around stable's median."""
    block: float = 1.0
    """So many events count as one outcome (sequential/latency.py)."""

    @property
    def compared(self) -> float:
        """Outcomes of the canary that were compared with stable's of the same time."""
        return self.rows[0].n if self.rows else 0.0


def has_ratio(metric: MetricThreshold) -> bool:
    """Whether the metric compares the arms by a ratio whose evidence is kept."""
    return (metric.min_ratio is not None or metric.max_ratio is not None) and is_counted(metric)


def unbounded(metric: MetricThreshold) -> bool:
    """Whether nothing says how large its values may be."""
    return metric.type == "return" and metric.return_range is None


def span(metric: MetricThreshold) -> tuple[float, float]:
    """What outcomes of 0 and 1 stand for."""
    where = metric.return_range if metric.type == "return" else None
    return (where.lowest, where.highest) if where else (0.0, 1.0)


def known(analysis: Analysis, trials: Iterable[Beside]) -> Mapping[str, Beside]:
    """By name, those of what is asked now."""
    found = {(trial.name, trial.claim): trial for trial in trials}
    asked = (metric for metric in analysis.metrics if has_ratio(metric))
    return {item.name: found[item.name, text] for item in asked if (item.name, text := bounds_text(item)) in found}


def looked(
    analysis: Analysis, before: Iterable[Beside], evidence: Evidence, subject: str, reference: str, weight: int
) -> tuple[Beside, ...]:
    """Every ratio's memory after one look, the canary at `weight`. Missing evidence leaves all of them as they are."""
    old, found = known(analysis, before), []
    canary, stable = evidence.arms.get(subject), evidence.arms.get(reference)
    torn = bool((canary and canary.gap) or (stable and stable.gap))
    for metric in analysis.metrics:
        if not has_ratio(metric):
            continue
        trial = old.get(metric.name) or Beside(metric.name, bounds_text(metric))
        if not 0 < weight < 100 or torn:
            trial = replace(trial, seen=None, weight=weight if trial.rows else 0)
        elif canary is not None and stable is not None:
            trial = _look(metric, _at_weight(trial, canary, weight), canary, stable)
        found.append(trial)
    return tuple(found)


def _at_weight(trial: Beside, canary: ArmEvidence, weight: int) -> Beside:
    """Who has compared nothing yet counts from the first episode on: there is no earlier weight."""
    if trial.weight == weight and trial.start <= canary.episodes:
        return trial
    fresh = not trial.rows and trial.weight == 0
    return replace(trial, seen=None, weight=weight, start=0.0 if fresh else float(canary.episodes))


def _look(metric: MetricThreshold, trial: Beside, canary: ArmEvidence, stable: ArmEvidence) -> Beside:
    if canary.episodes - trial.start < metric.min_episodes:
        return trial
    fixed = trial if trial.rows else _begun(metric, trial, stable)
    now = quantities(metric, fixed, canary, stable) if fixed else None
    if fixed is None or now is None:
        return trial
    if fixed.seen is None or any(_fell(new, old) for new, old in zip(now, fixed.seen, strict=True)):
        return replace(fixed, rows=fixed.rows or tuple(_first(stable) for _, stable in now), seen=now)
    batch = tuple((new[0].minus(old[0]), new[1].minus(old[1])) for new, old in zip(now, fixed.seen, strict=True))
    enough = max(1.0, GROWTH * fixed.compared)
    if any(a.n < enough or b.n < 1.0 for a, b in batch):
        return trial
    aside = 1 if unbounded(metric) else 0
    bet_on = batch[aside:]
    if any(not (a.possible and b.possible) for a, b in bet_on):
        return trial
    lowest, highest = _bars(metric)
    rows = [added(row, a, b) for row, (a, b) in zip(fixed.rows[:aside], batch[:aside], strict=True)]
    rows += [after(row, a, b, lowest, highest) for row, (a, b) in zip(fixed.rows[aside:], bet_on, strict=True)]
    return replace(fixed, rows=tuple(rows), seen=now)


def _begun(metric: MetricThreshold, trial: Beside, stable: ArmEvidence) -> Beside | None:
    """The memory with what is fixed by what stable has shown until now; None where that does not suffice."""
    if unbounded(metric):
        return replace(trial, bounds=_around_median(stable.returns))
    fixed = measure_of(metric, stable)
    if fixed is None:
        return None
    return replace(trial, bounds=() if fixed.bound is None else (fixed.bound,), block=fixed.block)


def _around_median(returns: Histogram) -> tuple[float, ...]:
    """The bounds of the bucket in which stable's median lies: whatever the returns are worth, a canary that mostly
    gets less than stable has more of its own at or below one of the two."""
    bounds = finite_bounds(returns)
    above = next((place for place, bound in enumerate(bounds) if returns[bound] > HALF * total(returns)), len(bounds))
    return tuple(bounds[max(0, above - 1) : above + 1])


def quantities(metric: MetricThreshold, trial: Beside, canary: ArmEvidence, stable: ArmEvidence) -> Seen | None:
    """What both arms have counted of everything that is compared; None where a number is missing or none."""
    one, other = _counts(metric, trial, canary), _counts(metric, trial, stable)
    return tuple(zip(one, other, strict=True)) if one and other else None


def _counts(metric: MetricThreshold, trial: Beside, arm: ArmEvidence) -> list[Counts] | None:
    if unbounded(metric):
        mean = arm.mean_return
        if mean is None or not math.isfinite(mean):
            return None
        whole = [prompt(arm.returns, bound) for bound in trial.bounds]
        found = [Counts(item.n, item.n - item.total) for item in whole if item is not None]
        return [Counts(arm.episodes, arm.episodes * mean), *found] if len(found) == len(whole) else None
    seen = outcomes(metric, arm, Measure(trial.bounds[0] if trial.bounds else None, trial.block))
    if seen is None or not seen.possible:
        return None
    return [Counts(seen.n, seen.n - seen.total) if metric.type == "errors" else seen]


def _bars(metric: MetricThreshold) -> tuple[Bar | None, Bar | None]:
    """What is bet on below, and above. Latency and returns without a range: that one arm is worse at the same time. A
    latency above its ratio is a share of prompt requests below stable's."""
    low, high = metric.min_ratio, metric.max_ratio
    if metric.type == "latency":
        return LEVEL if high is not None else None, LEVEL if low is not None else None
    if unbounded(metric):
        return LEVEL if low is not None else None, LEVEL if high is not None else None
    start, end = span(metric)
    return Bar(low, start, end) if low is not None else None, Bar(high, start, end) if high is not None else None


def _first(stable: Counts) -> Row:
    """Stable's mean so far is where bets begin; of a sum nobody bets on it means nothing, and hurts nobody."""
    return Row(level=stable.total / stable.n if stable.n > 0.0 else 0.0)


def _fell(now: tuple[Counts, Counts], before: tuple[Counts, Counts]) -> bool:
    return any(new.n < old.n - JITTER for new, old in zip(now, before, strict=True))
