"""Comparisons with stable over a rollout: the evidence of sequential tests and of ratios, and what tests make of it.

Both bet on what the two arms finish between two looks at one weight, while their endings are steady
(unfinished_episodes.py). A test is `worse`, `fine` or undecided; a ratio asks only whether the canary is worse.

The error budget says how often each check may roll back a healthy arm, as parts of analysis.alpha. Tests, bounds and
ratios share one alpha. UNFINISHED of another is for episodes that do not end, FAST_LANE of it for the fast lane, and
each step in shadow has one (judging/shadow_step.py). So without such a step it is 1.6 alpha in all. A pass needs every
test, so each test may use the whole alpha for it (statistics/canary_against_stable.py).
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricThreshold
from learnloop_operator.core.times import duration, rough
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.evidence import ArmEvidence, Check, Evidence, Verdict, count, number
from learnloop_operator.rollout.metrics.metric_types import PLAIN, Measure, chance_text, max_drop_share, type_of
from learnloop_operator.statistics.canary_against_stable import (
    Bars,
    LookMemory,
    Pair,
    bars,
    chance,
    look,
    needed,
    proven,
)
from learnloop_operator.statistics.e_values import Counts

EMPTY = LookMemory()


# What a comparison remembers, and how it takes a look at the evidence.


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of this rollout compared with stable. A changed metric is another question and starts over."""

    name: str
    question: str
    memory: LookMemory = EMPTY
    measure: Measure = PLAIN
    """Fixed at the look that begins the comparison."""

    @property
    def begun(self) -> bool:
        """Whether a look has been taken from which on outcomes count."""
        return self.memory.counted is not None or self.memory.judged.canary.n > 0.0


def has_ratio(metric: MetricThreshold) -> bool:
    """Whether the metric compares the arms by a ratio whose evidence is kept."""
    return (metric.min_ratio is not None or metric.max_ratio is not None) and type_of(metric).is_counted


def sequential(analysis: Analysis) -> list[MetricThreshold]:
    """The metrics that are tested and not compared as they stand."""
    return [metric for metric in analysis.metrics if metric.test == "sequential"]


def current(analysis: Analysis, comparisons: Iterable[Comparison]) -> Mapping[str, Comparison]:
    """By name, the comparisons that the analysis asks for; those of an earlier version of a metric are left out."""
    recorded = {(item.name, item.question): item for item in comparisons}
    return {
        metric.name: recorded[metric.name, text]
        for metric in analysis.metrics
        if (text := question_of(metric)) and (metric.name, text) in recorded
    }


def compared(
    analysis: Analysis,
    before: Iterable[Comparison],
    evidence: Evidence,
    candidate: str,
    reference: str,
    *,
    concurrent: bool,
) -> tuple[Comparison, ...]:
    """Every comparison after one look. Missing evidence leaves all of them as they are.

    A comparison begins when the canary has played `minEpisodes`: of the first episodes the short ones end first. It
    starts a new batch after a look at which not both arms got episodes (`concurrent`), or samples were lost.
    """
    recorded, result = current(analysis, before), []
    canary, stable = evidence.arms.get(candidate), evidence.arms.get(reference)
    torn = bool((canary and canary.gap) or (stable and stable.gap))
    for metric in analysis.metrics:
        if metric.test != "sequential" and not has_ratio(metric):
            continue
        item = recorded.get(metric.name) or Comparison(metric.name, question_of(metric))
        if not concurrent or torn:
            if item.memory.counted is not None:
                item = replace(item, memory=replace(item.memory, counted=None))
        elif canary and stable and type_of(metric).weight(canary) >= metric.min_episodes:
            item = _look(metric, item, canary, stable, bars_of(analysis))
        result.append(item)
    return tuple(result)


@lru_cache(maxsize=1024)
def question_of(metric: MetricThreshold) -> str:
    """The question in words: a changed number makes it another question. Empty for a metric without stable."""
    where, what = metric.return_range, type_of(metric).question_noun(metric)
    if metric.test == "sequential":
        text = f"{what} not worse by {metric.max_drop:g}" if metric.max_drop is not None else what
    elif has_ratio(metric):
        text = f"{what} within {bounds_text(metric)}"
    else:
        return ""
    return f"{text} of {where.lowest:g}..{where.highest:g}" if where else text


def bounds_text(metric: MetricThreshold) -> str:
    """`at least 0.8 × stable`: the ratio of a metric in words."""
    bounds = (("at least", metric.min_ratio), ("at most", metric.max_ratio))
    return " and ".join(f"{word} {number(bound)}× stable" for word, bound in bounds if bound is not None)


def _look(metric: MetricThreshold, item: Comparison, canary: ArmEvidence, stable: ArmEvidence, bar: Bars) -> Comparison:
    kind = type_of(metric)
    drop = max_drop_share(metric) if metric.test == "sequential" else None
    fixed = item.measure if item.begun else kind.measure(metric, stable)
    if fixed is None or (drop is None and metric.test == "sequential"):
        return item
    one, other = kind.outcomes(metric, canary, fixed), kind.outcomes(metric, stable, fixed)
    if one is None or other is None:
        return item
    return Comparison(item.name, item.question, look(item.memory, Pair(one, other), drop, bar), fixed)


# What a sequential test makes of its evidence: one check, with the sentence.


def weigh(metric: MetricThreshold, item: Comparison, analysis: Analysis, share: float, per_second: float) -> Check:
    """Worse rolls the canary back, fine lets the step pass, everything else holds and says for how long.

    `share` is the canary's share of new episodes, `per_second` the episodes it finishes.
    """
    bar, memory, kind = bars_of(analysis), item.memory, type_of(metric)
    noun, drop = kind.compared_noun(metric, item.measure), max_drop_share(metric)
    if drop is None:
        return Check(Verdict.HOLD, f"{noun}: spec.analysis.metrics: {metric.name} needs a maxDrop within its range")
    canary, stable = memory.judged.canary, memory.judged.stable
    if canary.n <= 0.0:
        return Check(Verdict.HOLD, f"{noun}: no episodes of the canary and of stable at the same time to compare yet")
    words = f"{noun} of the canary {_value(metric, canary)} vs {_value(metric, stable)} of stable"
    over = f"over {_amount(item, canary)}"
    worse, fine = chance_text(memory.worse), chance_text(memory.fine)
    tolerated = f"P(not worse by {metric.max_drop:g})"
    result = proven(memory, bar)
    if result == "worse":
        return Check(Verdict.BREACH, f"{words} {over}; P(worse) {worse}; bar {_bar(bar.worse)}")
    if result == "fine":
        return Check(Verdict.PASS, f"{words}; {tolerated} {fine}; bar {_bar(bar.fine)}")
    more = needed(memory, drop, bar, share) if 0.0 < share < 1.0 else None
    wait = "no end in sight at these rates" if more is None else f"about {more:.0f} more canary episodes needed"
    if more is not None and per_second > 0.0:
        wait += f", {duration(rough(more / per_second))} at the present rate"
    bounds = f"bars {_bar(bar.worse)} and {_bar(bar.fine)}"
    reason = reasons.NO_END_IN_SIGHT if more is None else reasons.NOT_ENOUGH_DATA
    text = f"{words} {over}: undecided: P(worse) {worse}, {tolerated} {fine}; {bounds}; {wait}"
    return Check(Verdict.HOLD, text, reason)


def _amount(item: Comparison, outcomes: Counts) -> str:
    """Blocks of requests are as many as episodes, and are none."""
    episodes = count(int(outcomes.n))
    return f"the requests of {episodes}" if item.measure.bound is not None else episodes


def _value(metric: MetricThreshold, outcomes: Counts) -> str:
    """The mean in the metric's own unit."""
    return number(type_of(metric).in_unit(metric, outcomes.total / outcomes.n if outcomes.n > 0.0 else 0.0))


def _bar(log_evidence: float) -> str:
    return f"{chance(log_evidence):.6g}"


UNFINISHED = 0.5
FAST_LANE = 0.1
TIMES = 3
"""A bound is asked of the canary, of the other arms of an experiment, and of the promoted arm by counters that start
over. Whether episodes end is asked of the canary, of the promoted arm, and of either again when counters start over."""


def rollback_checks(analysis: Analysis) -> int:
    """Sequential tests and bounds, each of which may roll back alone; at least 1.

    A query is compared directly and takes nothing of the budget.
    """
    return max(1, sum([type_of(metric).rollback_checks(metric) for metric in analysis.metrics]))


def bars_of(analysis: Analysis) -> Bars:
    return bars(analysis.alpha, rollback_checks(analysis))


def alpha_of_bound(analysis: Analysis, arms: int = 1) -> float:
    """Chance with which each bound of so many arms may be called broken though it holds, however often one looks."""
    return analysis.alpha / (rollback_checks(analysis) * TIMES * arms)


def alpha_of_unfinished(analysis: Analysis, arms: int = 1) -> float:
    """The same for episodes that do not end."""
    return UNFINISHED * analysis.alpha / (TIMES * arms)


def bar_of_fast_lane(analysis: Analysis, bounds: int, arms: int = 1) -> float:
    """Log e-value at which one of so many bounds of each arm counts as broken beyond doubt."""
    return math.log(max(1, bounds * arms) / (FAST_LANE * analysis.alpha))
