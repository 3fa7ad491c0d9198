"""Evidence in the status: exact numbers for the comparisons to go on from, and rounded ones for people."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricEvidence, MetricThreshold
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout.checks.against_stable import Comparison, bars_of, current
from learnloop_operator.rollout.metrics.metric_types import Measure, max_drop_share
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.canary_against_stable import Bars, Claim, Pair, TestMemory, chance, claim, needed

VERDICTS: Mapping[Claim, Literal["fine", "worse", "undecided"]] = {
    Claim.FINE: "fine",
    Claim.WORSE: "worse",
    Claim.UNDECIDED: "undecided",
}


@dataclass(frozen=True, slots=True)
class EpisodeRate:
    """How soon episodes come: what an estimate is made of."""

    now: datetime
    share: float
    """The canary's share of new episodes, 0..1."""
    per_second: float
    """Episodes the canary finishes."""


def load(saved: Iterable[MetricEvidence]) -> tuple[Comparison, ...]:
    """Comparisons from a status; damaged numbers start over."""
    result = []
    for item in saved:
        memory = _memory(item)
        measure = Measure(item.bound_seconds, item.block or 1.0) if memory != TestMemory() else Measure()
        result.append(Comparison(item.name, item.claim, memory, measure))
    return tuple(result)


def save(comparisons: Iterable[Comparison], analysis: Analysis, pace: EpisodeRate) -> list[MetricEvidence] | None:
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
        claim=item.claim,
        verdict=VERDICTS[claim(memory, bar)] if tested else "undecided",
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
    return stamp(pace.now + timedelta(seconds=wait))


def _memory(item: MetricEvidence) -> TestMemory:
    judged, counted = _pair(item.judged), _pair(item.counted)
    if judged is None or item.log_worse is None or item.log_fine is None:
        return TestMemory()
    return TestMemory(counted, judged, item.stable_total or 0.0, item.log_worse, item.log_fine)


def _numbers(pair: Pair) -> list[float]:
    return [pair.canary.n, pair.canary.total, pair.stable.n, pair.stable.total]


def _pair(numbers: list[float] | None) -> Pair | None:
    if not numbers or len(numbers) != 4:
        return None
    pair = Pair(Counts(*numbers[:2]), Counts(*numbers[2:]))
    return pair if pair.canary.possible and pair.stable.possible else None
