"""Checks of one metric: min, max, minRatio and maxRatio, and returns that leave their range.

A check answers PASS or BREACH only when the canary, and for a ratio stable too, has finished enough episodes. What was
seen must lie within the bounds to pass; beyond one it is a breach when the bound is certainly broken, and holds until
then. A ratio is certainly broken when the canary's number is beyond it and the canary is certainly worse than stable at
the same time. A query is compared directly.
"""

import math
from collections.abc import Iterator

from learnloop_api.kinds.rollouts.analysis import MetricThreshold, ReturnRange
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.against_stable import Comparison
from learnloop_operator.rollout.checks.metric_types import (
    PLAIN,
    Confidence,
    Side,
    max_drop_share,
    of_evidence,
    side,
    type_of,
)
from learnloop_operator.rollout.evidence import ArmEvidence, Check, Missing, Verdict, count, hold, lost, number
from learnloop_operator.statistics import canary_against_stable, e_values


def check(
    metric: MetricThreshold,
    candidate: ArmEvidence | None,
    reference: ArmEvidence | None,
    alpha: float,
    comparison: Comparison | None = None,
    apart: str = "",
    *,
    candidate_name: str = "the canary",
    reference_name: str = "stable",
) -> Check:
    """Judge the arm that must prove itself against every bound of `metric`.

    `alpha`: chance with which each bound may be called broken though it holds, over all looks. `comparison`: both arms
    at the same time, as far as that was seen. `apart`: why the arms are not compared; ratios then neither break nor
    hold. A ratio is measured from the reference in units of its size, so that it keeps its meaning for negative
    returns: the bar is `reference + (ratio - 1) * |reference|`.
    """
    noun = type_of(metric).noun_of(metric)
    episodes = int(type_of(metric).weight(candidate)) if candidate else 0
    if candidate is None:
        text = f"{noun}: Prometheus has no series of {candidate_name} yet, 0 of {metric.min_episodes} episodes needed"
        return hold(text, reasons.EMPTY_RESULT)
    if not episodes and candidate.episodes and metric.name in candidate.problems:
        return _without_number(metric, candidate, candidate_name)
    if episodes < metric.min_episodes:
        return hold(f"{noun}: {candidate_name} has {episodes} of {metric.min_episodes} episodes needed")
    value = _value(metric, candidate)
    if value is None:
        return _without_number(metric, candidate, candidate_name)
    words = f"{noun} of {candidate_name} {number(value)}"
    result = list(_of_bounds(metric, candidate, value, words, alpha))
    if breach := _first_breach(result):
        return breach
    if gap := lost(candidate.gap, candidate_name):
        return hold(f"{noun}: {gap.text}", gap.reason)
    if stray := out_of_range(metric, candidate, reference, comparison, candidate_name, reference_name):
        return stray
    if metric.min_ratio is not None or metric.max_ratio is not None:
        if apart:
            words += f", not comparable: {apart}"
        else:
            base = _base(metric, reference, reference_name)
            if isinstance(base, Check):
                result.append(base)
            else:
                words, ratios = _of_ratios(metric, value, base, comparison, alpha, candidate_name, reference_name)
                result += ratios
    return _first_breach(result) or (result[0] if result else Check(Verdict.PASS, words))


def _first_breach(checks: list[Check]) -> Check | None:
    return next((item for item in checks if item.verdict is Verdict.BREACH), None)


def _of_bounds(metric: MetricThreshold, arm: ArmEvidence, value: float, words: str, alpha: float) -> Iterator[Check]:
    """One check for each of min and max that the value does not keep."""
    kind = type_of(metric)
    for bar, low, text in ((metric.min, True, "at least"), (metric.max, False, "at most")):
        if bar is not None and (value < bar if low else value > bar):
            sure = kind.certainly_beyond(metric, arm, bar, low, alpha) if kind.is_counted else None
            yield _beyond(f"{words} over {count(int(kind.weight(arm)))}; bar {text} {number(bar)}", sure)


def _of_ratios(
    metric: MetricThreshold,
    value: float,
    base: float,
    comparison: Comparison | None,
    alpha: float,
    candidate_name: str,
    reference_name: str,
) -> tuple[str, list[Check]]:
    """The numbers of both arms, and a check for each ratio that is not kept, or that too few episodes speak of.

    Quantiles of latency and queries are those of the whole rollout, other numbers those of the same time.
    """
    kind, over, sure = type_of(metric), "", None
    if kind.is_counted:
        memory = comparison.memory if comparison else None
        n = memory.judged.canary.n if memory else 0.0
        if comparison is None or memory is None or n < metric.min_episodes:
            text = f"{int(n)} of {count(metric.min_episodes)} of {candidate_name} compared with those of the same time"
            return "", [hold(f"{kind.noun_of(metric)}: {text}")]
        over = f" over {count(int(n))}"
        if comparison.measure.bound is None:
            value, base = (kind.in_unit(metric, sum / n) for sum in (memory.judged.canary.total, memory.stable_total))
            over = f" at the same time{over}"
        sure = of_evidence(memory.worse, alpha, "worse at the same time")
    words = f"{kind.noun_of(metric)} of {candidate_name} {number(value)} vs {number(base)} of {reference_name}{over}"
    return words, [_beyond(f"{words}; bar {number(ratio)}×", sure) for ratio in _broken(metric, value, base)]


def _broken(metric: MetricThreshold, value: float, base: float) -> Iterator[float]:
    for ratio, low in ((metric.min_ratio, True), (metric.max_ratio, False)):
        if ratio is not None:
            bar = base + (ratio - 1) * abs(base)
            if value < bar if low else value > bar:
                yield ratio


def broken_ratios(metric: MetricThreshold, candidate: ArmEvidence, reference: ArmEvidence, name: str) -> list[str]:
    """One sentence for each ratio or maxDrop that an arm does not keep to stable, of what both did at the same time."""
    noun, value = type_of(metric).noun_of(metric), _value(metric, candidate)
    base = _base(metric, reference, "stable")
    if value is None or isinstance(base, Check) or type_of(metric).weight(candidate) < metric.min_episodes:
        return []
    words = f"{noun} of {name} {number(value)} vs {number(base)} of stable"
    dropped = [f"{words}; maxDrop {number(metric.max_drop or 0.0)}"] if _dropped(metric, candidate, reference) else []
    return [f"{words}; bar {number(ratio)}×" for ratio in _broken(metric, value, base)] + dropped


def _dropped(metric: MetricThreshold, candidate: ArmEvidence, reference: ArmEvidence) -> bool:
    """Whether an arm is worse than stable by more than the maxDrop of a sequential metric."""
    kind, drop = type_of(metric), max_drop_share(metric) if metric.test == "sequential" else None
    measure = kind.measure(metric, reference) if drop is not None else None
    if drop is None or measure is None:
        return False
    own, base = (kind.outcomes(metric, arm, measure) or e_values.NONE for arm in (candidate, reference))
    return own.n > 0.0 and base.n > 0.0 and base.total / base.n - own.total / own.n > drop


def _beyond(words: str, sure: Confidence | None) -> Check:
    """`sure` None: unknown, the number decides as it stands."""
    if sure is None:
        return Check(Verdict.BREACH, f"{words}, compared directly")
    return Check(Verdict.BREACH, f"{words}; {sure.text}") if sure.broken else hold(f"{words}, undecided: {sure.text}")


def _base(metric: MetricThreshold, reference: ArmEvidence | None, reference_name: str) -> float | Check:
    """The reference's number, or why there is none."""
    noun = type_of(metric).noun_of(metric)
    recorded = int(type_of(metric).weight(reference)) if reference else 0
    if reference is not None and not recorded and reference.episodes and metric.name in reference.problems:
        return _without_number(metric, reference, reference_name)
    if reference is None or recorded < metric.min_episodes:
        text = f"{noun}: {reference_name} has {recorded} of {metric.min_episodes} episodes needed to compare with"
        return hold(text, reasons.NOT_ENOUGH_DATA if reference else reasons.EMPTY_RESULT)
    base = _value(metric, reference)
    if base is None:
        return _without_number(metric, reference, reference_name)
    gap = lost(reference.gap, reference_name)
    return hold(f"{noun}: {gap.text}", gap.reason) if gap else base


def _value(metric: MetricThreshold, arm: ArmEvidence) -> float | None:
    value = type_of(metric).value(metric, arm)
    return value if value is not None and math.isfinite(value) else None


def _without_number(metric: MetricThreshold, arm: ArmEvidence, arm_is: str) -> Check:
    """No number: the reason that is on record, or that of the number itself."""
    problem = arm.problems.get(metric.name) or arm.problems.get("")
    if problem is None:
        value = type_of(metric).value(metric, arm)
        problem = Missing(reasons.EMPTY_RESULT, "nothing was counted")
        if value is not None:
            problem = Missing(reasons.NOT_A_NUMBER, f"it is {value}")
    noun = type_of(metric).noun_of(metric)
    return hold(f"{noun}: no number for {arm_is} over {count(arm.episodes)} ({problem.text})", problem.reason)


# Returns outside returnRange: nothing is proven by them, and nothing passes them.
#
# A sum below n times `lowest` proves that one return at least was lower; how many were, and how the others were, is
# unknown. So it proves nothing for a test. It is a fact by itself: the mean is lower than the worst that the spec calls
# possible for one episode. So `lowest` is a hard bound of its own, as long as stable keeps to the range. Where stable
# does not either, or returns lie above the range, the range is wrong and not the canary: it holds.


def out_of_range(
    metric: MetricThreshold,
    candidate: ArmEvidence | None,
    reference: ArmEvidence | None,
    comparison: Comparison | None = None,
    candidate_name: str = "the canary",
    reference_name: str = "stable",
) -> Check | None:
    """A breach or a hold where returns lie outside the metric's range; None where they do not.

    What came since the comparison last bet speaks first: an arm that turned bad is not covered by what it was before.
    """
    where = metric.return_range
    if where is None:
        return None
    counted = [type_of(metric).outcomes(metric, arm, PLAIN) if arm else None for arm in (candidate, reference)]
    whole = canary_against_stable.Pair(*(item or e_values.NONE for item in counted))
    last = comparison.memory.counted if comparison else None
    for pair in (whole.minus(last), whole) if last else (whole,):
        ripe = pair.canary.n >= metric.min_episodes
        one, other = side(pair.canary) if ripe else None, side(pair.stable)
        noun = type_of(metric).noun_of(metric)
        span = f"returnRange {where.lowest:g}..{where.highest:g}"
        if one is Side.BELOW and other is None and pair.stable.n > 0.0:
            text = f"{noun} of {candidate_name} {_mean(where, pair.canary)} over {count(int(pair.canary.n))}"
            against = f"vs {_mean(where, pair.stable)} of {reference_name}"
            sentence = f"{text} {against}: lower than any single return of {span} may be"
            return Check(Verdict.BREACH, sentence, reasons.OUT_OF_RANGE)
        for whose, counts, result in ((candidate_name, pair.canary, one), (reference_name, pair.stable, other)):
            if result is not None:
                text = f"{noun} of {whose} {_mean(where, counts)} over {count(int(counts.n))} lies outside {span}"
                fix = f"set returnRange of the metric {metric.name} to where all returns lie"
                return hold(f"{text} and proves nothing: {fix}", reasons.OUT_OF_RANGE)
    return None


def _mean(where: ReturnRange, counts: e_values.Counts) -> str:
    return number(where.lowest + counts.total / counts.n * (where.highest - where.lowest))
