"""Evidence in the status: exact numbers for the tests to go on from, and rounded ones for people."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from datetime import datetime, timedelta
from typing import Literal

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricEvidence, MetricThreshold
from learnloop_operator.core.times import stamp
from learnloop_operator.rollout.checks.paired_outcomes import PairedOutcomes, known
from learnloop_operator.rollout.checks.sequential_test import SequentialTest, bars_of, sequential
from learnloop_operator.rollout.metrics.all_types import type_of
from learnloop_operator.rollout.metrics.metric_type import Measure, max_drop_share
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.comparison import Bars, Claim, Pair, TestMemory, chance, claim, needed
from learnloop_operator.statistics.ratio import Row

VERDICTS: Mapping[Claim, Literal["fine", "worse", "undecided"]] = {
    Claim.FINE: "fine",
    Claim.WORSE: "worse",
    Claim.UNDECIDED: "undecided",
}
ROW = len(fields(Row))


@dataclass(frozen=True, slots=True)
class EpisodeRate:
    """How soon episodes come: what an estimate is made of."""

    now: datetime
    share: float
    """The canary's share of new episodes, 0..1."""
    per_second: float
    """Episodes the canary finishes."""


def load(saved: Iterable[MetricEvidence]) -> tuple[SequentialTest, ...]:
    """Tests from a status; damaged numbers start over."""
    return tuple(_trial(item) for item in saved if item.judged is not None)


def load_ratios(saved: Iterable[MetricEvidence]) -> tuple[PairedOutcomes, ...]:
    """Ratio evidence from a status; damaged numbers start over."""
    return tuple(_ratio(item) for item in saved if item.compared is not None)


def save(
    trials: Iterable[SequentialTest],
    ratios: Iterable[PairedOutcomes],
    analysis: Analysis,
    pace: EpisodeRate,
) -> list[MetricEvidence] | None:
    """Every test and ratio, in the order of the metrics; None without any."""
    tests = {trial.name: trial for trial in trials}
    compared = known(analysis, ratios)
    bar = bars_of(analysis)
    tested, remaining = {metric.name for metric in sequential(analysis)}, []
    for metric in analysis.metrics:
        if metric.name in tested and metric.name in tests:
            remaining.append(_tested(tests[metric.name], metric, bar, pace))
        elif metric.name in compared:
            remaining.append(_compared(compared[metric.name], metric))
    return remaining or None


def _estimate(pace: EpisodeRate, more: float | None) -> str | None:
    """About when `more` canary episodes will have ended; None beyond a year."""
    if more is None or not pace.per_second > 0.0 or not 0.0 < (wait := more / pace.per_second) <= 366 * 86_400.0:
        return None
    return stamp(pace.now + timedelta(seconds=wait))


def _tested(trial: SequentialTest, metric: MetricThreshold, bar: Bars, pace: EpisodeRate) -> MetricEvidence:
    memory, kind = trial.memory, type_of(metric)
    drop = max_drop_share(metric, kind.scale(metric))
    more = needed(memory, drop, bar, pace.share) if drop is not None and 0.0 < pace.share < 1.0 else None
    return MetricEvidence(
        name=trial.name,
        claim=trial.claim,
        verdict=VERDICTS[claim(memory, bar)],
        chance_worse=round(chance(memory.worse), 6),
        chance_fine=round(chance(memory.fine), 6),
        needed_episodes=None if more is None else int(more),
        estimated_at=_estimate(pace, more),
        bound_seconds=trial.measure.bound if trial.begun else None,
        block=trial.measure.block if trial.begun and kind.counts_events else None,
        log_worse=memory.worse,
        log_fine=memory.fine,
        judged=_numbers(memory.judged),
        seen=_numbers(memory.seen) if memory.seen else None,
    )


def _compared(trial: PairedOutcomes, metric: MetricThreshold) -> MetricEvidence:
    """A ratio proves nothing but a breach, which ends the rollout: until then it is undecided."""
    logs = [max(row.low, row.high) for row in trial.rows[type_of(metric).first_bet_on :]]
    return MetricEvidence(
        name=trial.name,
        claim=trial.claim,
        verdict="undecided",
        chance_worse=round(chance(max(logs)), 6) if logs else None,
        bounds=list(trial.bounds) or None,
        block=trial.block if type_of(metric).counts_events and trial.rows else None,
        at_weight=trial.weight,
        start_episodes=trial.start,
        compared=[value for row in trial.rows for value in astuple(row)],
        seen=[value for pair in trial.seen for item in pair for value in (item.n, item.total)] if trial.seen else None,
    )


def _ratio(item: MetricEvidence) -> PairedOutcomes:
    fresh = PairedOutcomes(item.name, item.claim)
    numbers, counted = item.compared or [], item.seen
    rows = tuple(Row(*numbers[at : at + ROW]) for at in range(0, len(numbers) - ROW + 1, ROW))
    whole = len(numbers) == ROW * len(rows) and all(row.possible and row.n >= 0.0 for row in rows)
    fits = counted is None or (len(counted) == 4 * len(rows) and all(map(math.isfinite, counted)))
    if not whole or not fits or not math.isfinite(item.start_episodes or 0.0):
        return fresh
    pairs = None
    if counted is not None:
        groups = (counted[at : at + 4] for at in range(0, len(counted), 4))
        pairs = tuple((Counts(*group[:2]), Counts(*group[2:])) for group in groups)
    bounds, block = tuple(item.bounds or ()), item.block or 1.0
    return PairedOutcomes(
        item.name, item.claim, rows, pairs, item.at_weight or 0, item.start_episodes or 0.0, bounds, block
    )


def _trial(item: MetricEvidence) -> SequentialTest:
    memory = _memory(item)
    measure = Measure(item.bound_seconds, item.block or 1.0) if memory != TestMemory() else Measure()
    return SequentialTest(item.name, item.claim, memory, measure)


def _memory(item: MetricEvidence) -> TestMemory:
    judged, counted = _pair(item.judged), _pair(item.seen)
    if judged is None or item.log_worse is None or item.log_fine is None:
        return TestMemory()
    return TestMemory(counted, judged, item.log_worse, item.log_fine)


def _numbers(pair: Pair) -> list[float]:
    return [pair.canary.n, pair.canary.total, pair.stable.n, pair.stable.total]


def _pair(numbers: list[float] | None) -> Pair | None:
    if not numbers or len(numbers) != 4:
        return None
    pair = Pair(Counts(*numbers[:2]), Counts(*numbers[2:]))
    return pair if pair.canary.possible and pair.stable.possible else None
