"""Returns where returnRange says there are none: nothing is proven by them, and nothing passes them.

The tests know the sum of the returns alone. A sum below n times `lowest` proves that one return at least was lower; how
many were, and how the others were, is unknown: one of -999 among ninety-nine of 1 adds up to what a hundred of -9
do. To set such a sum to that of n worst returns would claim n bad outcomes where one is proven. No bound on the chance
of a false rollback would be left. So it proves nothing for a test, in either direction.

It is a fact by itself: the mean is lower than the worst that the spec calls possible for one episode. So `lowest` is a
hard bound of its own, as `min` of a threshold is, once minEpisodes have ended and as long as stable keeps to the range.
Where stable does not either, or returns lie above the range, the range is wrong and not the canary: it holds.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from learnloop_api.kinds.rollouts.analysis import MetricThreshold, ReturnRange
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.paired_outcomes import PairedOutcomes
from learnloop_operator.rollout.evidence import ArmEvidence, Check, Missing, Verdict, count, hold, lost, number
from learnloop_operator.rollout.metrics.all_types import type_of
from learnloop_operator.rollout.metrics.hard_bound import Confidence
from learnloop_operator.rollout.metrics.metric_type import Side, side
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
        for whose, counted, result in ((subject_is, pair.canary, one), (reference_is, pair.stable, other)):
            if result is not None:
                return hold(_wrong(metric, where, counted, whose), reasons.OUT_OF_RANGE)
    return None


def _worse(metric: MetricThreshold, where: ReturnRange, pair: Pair, subject_is: str, reference_is: str) -> str:
    text = (
        f"{type_of(metric).noun(metric)} of {subject_is} {_mean(where, pair.canary)} over {count(int(pair.canary.n))}"
    )
    against = f"vs {_mean(where, pair.stable)} of {reference_is}"
    return f"{text} {against}: lower than any single return of returnRange {where.lowest:g}..{where.highest:g} may be"


def _wrong(metric: MetricThreshold, where: ReturnRange, seen: Counts, whose: str) -> str:
    text = f"{type_of(metric).noun(metric)} of {whose} {_mean(where, seen)} over {count(int(seen.n))}"
    return (
        f"{text} lies outside returnRange {where.lowest:g}..{where.highest:g} and proves nothing: "
        f"set returnRange of the metric {metric.name} to where all returns lie"
    )


def _mean(where: ReturnRange, seen: Counts) -> str:
    return number(where.lowest + seen.total / seen.n * (where.highest - where.lowest))


# What one check makes of its bounds: min, max, minRatio and maxRatio.
#
# A check answers PASS or BREACH only when both arms have spoken often enough. What was seen must lie within the bounds
# to pass; beyond one it is a breach when the bound is certainly broken (metrics/metric_type.py), and holds until then.
# A query without a number of events is compared as it stands.
#
# Ratios are about outcomes that both arms had at the same time (paired_outcomes.py): of two times a world that changes
# would speak against a good arm. Where the other arm plays no more a ratio says nothing new, neither for the arm nor
# against it.


@dataclass(frozen=True, slots=True)
class Comparison:
    """The evidence of ratios."""

    trial: PairedOutcomes | None = None
    """Both arms at the same time, as far as that was seen."""
    apart: str = ""
    """Why the arms are not compared now; ratios then neither break nor hold."""


NOT_YET = Comparison()


def check(
    metric: MetricThreshold,
    subject: ArmEvidence | None,
    reference: ArmEvidence | None,
    alpha: float,
    comparison: Comparison = NOT_YET,
    *,
    subject_is: str = "the canary",
    reference_is: str = "stable",
) -> Check:
    """Judge the arm that must prove itself against every bound of `metric`.

    `alpha`: chance with which each bound may be called broken though it holds, over all looks. A ratio is measured
    from the reference in units of its size, so that it keeps its meaning for negative returns: the bar is
    `reference + (ratio - 1) * |reference|`, both numbers being `comparison`'s.
    """
    noun = type_of(metric).noun(metric)
    episodes = type_of(metric).spoken(metric, subject) if subject else 0
    if subject is None:
        text = f"{noun}: Prometheus has no series of {subject_is} yet, 0 of {metric.min_episodes} episodes needed"
        return hold(text, reasons.EMPTY_RESULT)
    if not episodes and subject.episodes and metric.name in subject.problems:
        return _mute(metric, noun, subject, subject_is)
    if episodes < metric.min_episodes:
        return hold(f"{noun}: {subject_is} has {episodes} of {metric.min_episodes} episodes needed")
    value = _value(metric, subject)
    if value is None:
        return _mute(metric, noun, subject, subject_is)
    words = f"{noun} of {subject_is} {number(value)}"
    result = _of_bounds(metric, subject, value, words, alpha)
    if not _first_breach(result) and (gap := lost(subject.gap, subject_is)):
        return hold(f"{noun}: {gap.text}", gap.reason)
    if metric.min_ratio is not None or metric.max_ratio is not None:
        if comparison.apart:
            words += f", not comparable: {comparison.apart}"
        else:
            base = _base(metric, noun, reference, reference_is)
            both = base if isinstance(base, Check) else _both(metric, noun, value, base, comparison.trial, subject_is)
            if isinstance(both, Check):
                result.append(both)
            else:
                words = f"{noun} of {subject_is} {number(both[0])} vs {number(both[1])} of {reference_is}{both[2]}"
                result += _of_ratios(metric, comparison.trial, both[0], both[1], words, alpha)
    return _first_breach(result) or (result[0] if result else Check(Verdict.PASS, words))


def _first_breach(found: list[Check]) -> Check | None:
    for item in found:
        if item.verdict is Verdict.BREACH:
            return item
    return None


def _of_bounds(metric: MetricThreshold, arm: ArmEvidence, value: float, said: str, alpha: float) -> list[Check]:
    """One check for each of min and max that the value does not keep."""
    result, kind = [], type_of(metric)
    for bar, low, text in ((metric.min, True, "at least"), (metric.max, False, "at most")):
        if bar is not None and (value < bar if low else value > bar):
            sure = kind.certainly_beyond(metric, arm, bar, low, alpha) if kind.is_counted(metric) else None
            result.append(_beyond(f"{said} over {count(kind.spoken(metric, arm))}; bar {text} {number(bar)}", sure))
    return result


def _both(
    metric: MetricThreshold, noun: str, value: float, base: float, trial: PairedOutcomes | None, subject_is: str
) -> tuple[float, float, str] | Check:
    """The numbers of both arms that a ratio compares, and of when they are; a hold where there are too few.

    Quantiles of latency, and queries that count nothing, are those of the whole rollout.
    """
    kind = type_of(metric)
    if not kind.is_counted(metric):
        return value, base, ""
    compared = trial.compared if trial else 0.0
    if trial is None or compared < metric.min_episodes:
        text = f"{int(compared)} of {count(metric.min_episodes)} of {subject_is} compared with those of the same time"
        return replace(hold(f"{noun}: {text}"), of_both=True)
    over = f" over {count(int(compared))}"
    if kind.of_whole_rollout:
        return value, base, over
    row, (start, end) = trial.rows[0], kind.scale(metric) or (0.0, 1.0)
    own, others_counts = (start + total / row.n * (end - start) for total in (row.total, row.beside))
    return own, others_counts, f" at the same time{over}"


def _of_ratios(
    metric: MetricThreshold, trial: PairedOutcomes | None, value: float, base: float, said: str, alpha: float
) -> Iterator[Check]:
    """One check for each ratio that the value does not keep."""
    kind = type_of(metric)
    for ratio, low in ((metric.min_ratio, True), (metric.max_ratio, False)):
        if ratio is None:
            continue
        bar = base + (ratio - 1) * abs(base)
        if value < bar if low else value > bar:
            sure = None
            if trial is not None and kind.is_counted(metric):
                sure = kind.ratio_certainly_beyond(trial.rows, trial.bounds, low, alpha)
            yield replace(_beyond(f"{said}; bar {number(ratio)}×", sure), of_both=True)


def broken_ratios(metric: MetricThreshold, subject: ArmEvidence, reference: ArmEvidence, subject_is: str) -> list[str]:
    """One sentence for each ratio that an arm does not keep to stable, of all that both did at the same time."""
    noun, value = type_of(metric).noun(metric), _value(metric, subject)
    base = _base(metric, noun, reference, "stable")
    if value is None or isinstance(base, Check) or type_of(metric).spoken(metric, subject) < metric.min_episodes:
        return []
    words = f"{noun} of {subject_is} {number(value)} vs {number(base)} of stable"
    return [item.sentence for item in _of_ratios(metric, None, value, base, words, 0.0)]


def _beyond(said: str, sure: Confidence | None) -> Check:
    """`sure` None: unknown, the number decides as it stands."""
    if sure is None:
        return Check(Verdict.BREACH, f"{said}, compared as it stands")
    return Check(Verdict.BREACH, f"{said}; {sure.text}") if sure.broken else hold(f"{said}, undecided: {sure.text}")


def _base(metric: MetricThreshold, noun: str, reference: ArmEvidence | None, reference_is: str) -> float | Check:
    """The reference's number, or why there is none."""
    recorded = type_of(metric).spoken(metric, reference) if reference else 0
    if reference is not None and not recorded and reference.episodes and metric.name in reference.problems:
        return _mute(metric, noun, reference, reference_is)
    if reference is None or recorded < metric.min_episodes:
        text = f"{noun}: {reference_is} has {recorded} of {metric.min_episodes} episodes needed to compare with"
        return hold(text, reasons.NOT_ENOUGH_DATA if reference else reasons.EMPTY_RESULT)
    base = _value(metric, reference)
    if base is None:
        return _mute(metric, noun, reference, reference_is)
    gap = lost(reference.gap, reference_is)
    return hold(f"{noun}: {gap.text}", gap.reason) if gap else base


def _value(metric: MetricThreshold, arm: ArmEvidence) -> float | None:
    value = type_of(metric).value(metric, arm)
    return value if value is not None and math.isfinite(value) else None


def _mute(metric: MetricThreshold, noun: str, arm: ArmEvidence, arm_is: str) -> Check:
    """No number: the reason that is on record, or that of the number itself."""
    problem = arm.problems.get(metric.name) or arm.problems.get("")
    if problem is None:
        result = type_of(metric).value(metric, arm)
        problem = Missing(reasons.EMPTY_RESULT, "nothing was counted")
        if result is not None:
            problem = Missing(reasons.NOT_A_NUMBER, f"it is {result}")
    return hold(f"{noun}: no number for {arm_is} over {count(arm.episodes)} ({problem.text})", problem.reason)
