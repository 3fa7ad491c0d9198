"""Comparisons with stable over a rollout: the evidence of sequential tests and of ratios, and what tests make of it.

Both bet on what the two arms finish between two looks at one weight, while their endings are steady
(unfinished_episodes.py). A test is `worse`, `fine` or undecided; a ratio asks only whether the canary is worse.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricEvidence, MetricThreshold
from learnloop_operator.core import times
from learnloop_operator.rollout import reasons
from learnloop_operator.rollout.checks.error_budget import bars_of
from learnloop_operator.rollout.checks.metric_types import PLAIN, Measure, chance_text, max_drop_share, type_of
from learnloop_operator.rollout.evidence import ArmEvidence, Check, Evidence, Verdict, count, number
from learnloop_operator.statistics.canary_against_stable import Bars, LookMemory, Pair, chance, look, needed, proven
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
        wait += f", {times.duration(times.rough(more / per_second))} at the present rate"
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


# Comparisons as the status keeps them.


@dataclass(frozen=True, slots=True)
class EpisodeRate:
    """How soon episodes come: what an estimate is made of."""

    now: datetime
    share: float
    """The canary's share of new episodes, 0..1."""
    per_second: float
    """Episodes the canary finishes."""


def load_comparisons(saved: Iterable[MetricEvidence]) -> tuple[Comparison, ...]:
    """Comparisons from a status; damaged numbers start over."""
    result = []
    for item in saved:
        memory = _memory(item)
        measure = Measure(item.bound_seconds, item.block or 1.0) if memory != LookMemory() else Measure()
        result.append(Comparison(item.name, item.claim, memory, measure))
    return tuple(result)


def save_comparisons(
    comparisons: Iterable[Comparison], analysis: Analysis, pace: EpisodeRate
) -> list[MetricEvidence] | None:
    """Every comparison, in the order of the metrics; None without any."""
    recorded, bar = current(analysis, comparisons), bars_of(analysis)
    return [
        _saved(recorded[metric.name], metric, bar, pace) for metric in analysis.metrics if metric.name in recorded
    ] or None


def _saved(item: Comparison, metric: MetricThreshold, bar: Bars, pace: EpisodeRate) -> MetricEvidence:
    """A ratio proves nothing but a breach, which ends the rollout: until then it is undecided."""
    memory, tested = item.memory, metric.test == "sequential"
    drop = max_drop_share(metric) if tested else None
    more = needed(memory, drop, bar, pace.share) if drop is not None and 0.0 < pace.share < 1.0 else None
    bound = item.measure.bound if item.begun else None
    return MetricEvidence(
        name=item.name,
        claim=item.question,
        verdict=proven(memory, bar) if tested else "undecided",
        chance_worse=round(chance(memory.worse), 6),
        chance_fine=round(chance(memory.fine), 6) if tested else None,
        needed_episodes=None if more is None else int(more),
        estimated_at=_estimate(pace, more),
        bound_seconds=bound,
        block=item.measure.block if bound is not None else None,
        log_worse=memory.worse,
        log_fine=memory.fine,
        judged=_numbers(memory.judged),
        stable_total=memory.stable_total,
        counted=_numbers(memory.counted) if memory.counted else None,
    )


def _estimate(pace: EpisodeRate, more: float | None) -> str | None:
    """About when `more` canary episodes will have ended; None beyond a year."""
    if more is None or not pace.per_second > 0.0 or not 0.0 < (wait := more / pace.per_second) <= 366 * 86_400.0:
        return None
    return times.stamp(pace.now + timedelta(seconds=wait))


def _memory(item: MetricEvidence) -> LookMemory:
    judged, counted = _pair(item.judged), _pair(item.counted)
    if judged is None or item.log_worse is None or item.log_fine is None:
        return LookMemory()
    return LookMemory(counted, judged, item.stable_total or 0.0, item.log_worse, item.log_fine)


def _numbers(pair: Pair) -> list[float]:
    return [pair.canary.n, pair.canary.total, pair.stable.n, pair.stable.total]


def _pair(numbers: list[float] | None) -> Pair | None:
    if not numbers or len(numbers) != 4:
        return None
    pair = Pair(Counts(*numbers[:2]), Counts(*numbers[2:]))
    return pair if pair.canary.possible and pair.stable.possible else None
