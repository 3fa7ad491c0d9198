"""Evidence as the status keeps it: to the last bit what tests need to go on, rounded what only people read."""

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from datetime import datetime, timedelta

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricEvidence, MetricThreshold
from learnloop_operator.core.times import parse, stamp
from learnloop_operator.rollout.checks.dry_run_metrics import DryRunReport, verdict_of
from learnloop_operator.rollout.checks.paired_outcomes import PairedOutcomes, known
from learnloop_operator.rollout.checks.sequential_test import SequentialTest, bars_of, sequential
from learnloop_operator.rollout.metrics.metric_type import Measure, max_drop_share
from learnloop_operator.rollout.metrics.registry import type_of
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.comparison import Bars, Pair, TestMemory, chance, claim, needed
from learnloop_operator.statistics.ratio import Row

LONGEST = 366 * 86_400.0
"""Seconds: an estimate beyond a year tells nothing."""
GRAINS = (30.0, 300.0, 3600.0, 86_400.0)
"""Seconds to which estimates are rounded, the coarsest that is at most a fifth of the wait."""
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
    """Trials from a status; one with damaged numbers begins anew."""
    return tuple(_trial(item) for item in saved if item.judged is not None)


def load_ratios(saved: Iterable[MetricEvidence]) -> tuple[PairedOutcomes, ...]:
    """What ratios have compared, from a status; one with damaged numbers begins anew."""
    return tuple(_ratio(item) for item in saved if item.compared is not None)


def load_reports(saved: Iterable[MetricEvidence]) -> tuple[DryRunReport, ...]:
    """The verdicts of dry runs from a status."""
    return tuple(DryRunReport(item.name, item.claim, item.verdict) for item in saved if item.dry_run)


def save(
    trials: Iterable[SequentialTest],
    ratios: Iterable[PairedOutcomes],
    reports: Iterable[DryRunReport],
    analysis: Analysis,
    pace: EpisodeRate,
    before: Iterable[MetricEvidence] = (),
) -> list[MetricEvidence] | None:
    """Every test, ratio and dry run, in the order of the metrics; None where there is none."""
    tests, dry = {trial.name: trial for trial in trials}, {report.name: report for report in reports}
    compared = known(analysis, ratios)
    old, bar = {item.name: item for item in before}, bars_of(analysis)
    tested, kept = {metric.name for metric in sequential(analysis)}, []
    for metric in analysis.metrics:
        if metric.name in tested and metric.name in tests:
            item = _tested(tests[metric.name], metric, bar, pace, old.get(metric.name))
            said = dry.get(metric.name) if metric.dry_run else None
            kept.append(item.model_copy(update={"verdict": said.verdict}) if said else item)
        elif metric.name in compared:
            kept.append(_compared(compared[metric.name], metric, dry.get(metric.name)))
        elif metric.dry_run and metric.name in dry:
            report = dry[metric.name]
            kept.append(MetricEvidence(name=report.name, claim=report.claim, verdict=report.verdict, dry_run=True))
    return kept or None


def estimate(pace: EpisodeRate, more: float | None, before: str | None) -> str | None:
    """About when `more` canary episodes will have ended. The estimate of before stays while it is near enough: an
    estimate that moves with every look would be written with every look."""
    if more is None or not pace.per_second > 0.0 or not 0.0 < (wait := more / pace.per_second) <= LONGEST:
        return None
    old = parse(before)
    if old is not None and old > pace.now and abs((old - pace.now).total_seconds() - wait) <= max(GRAINS[0], wait / 2):
        return before
    grain = max((item for item in GRAINS if item <= wait / 5.0), default=GRAINS[0])
    due = (pace.now + timedelta(seconds=wait)).timestamp()
    return stamp(datetime.fromtimestamp(-(-due // grain) * grain, pace.now.tzinfo))


def _tested(
    trial: SequentialTest, metric: MetricThreshold, bar: Bars, pace: EpisodeRate, before: MetricEvidence | None
) -> MetricEvidence:
    memory, kind = trial.memory, type_of(metric)
    drop = max_drop_share(metric, kind.scale(metric))
    more = needed(memory, drop, bar, pace.share) if drop is not None and 0.0 < pace.share < 1.0 else None
    return MetricEvidence(
        name=trial.name,
        claim=trial.claim,
        verdict=verdict_of(claim(memory, bar)),
        dry_run=metric.dry_run or None,
        chance_worse=round(chance(memory.worse), 6),
        chance_fine=round(chance(memory.fine), 6),
        needed_episodes=None if more is None else int(more),
        estimated_at=estimate(pace, more, before.estimated_at if before else None),
        bound_seconds=trial.measure.bound if trial.begun else None,
        block=trial.measure.block if trial.begun and kind.counts_events else None,
        log_worse=memory.worse,
        log_fine=memory.fine,
        judged=_numbers(memory.judged),
        seen=_numbers(memory.seen) if memory.seen else None,
    )


def _compared(trial: PairedOutcomes, metric: MetricThreshold, said: DryRunReport | None) -> MetricEvidence:
    """A ratio proves nothing but a breach, which ends the rollout: until then it is undecided, or a dry run's word."""
    logs = [max(row.low, row.high) for row in trial.rows[type_of(metric).first_bet_on :]]
    return MetricEvidence(
        name=trial.name,
        claim=trial.claim,
        verdict=said.verdict if said else "undecided",
        dry_run=metric.dry_run or None,
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
    numbers, seen = item.compared or [], item.seen
    rows = tuple(Row(*numbers[at : at + ROW]) for at in range(0, len(numbers) - ROW + 1, ROW))
    whole = len(numbers) == ROW * len(rows) and all(row.possible and row.n >= 0.0 for row in rows)
    fits = seen is None or (len(seen) == 4 * len(rows) and all(map(math.isfinite, seen)))
    if not whole or not fits or not math.isfinite(item.start_episodes or 0.0):
        return fresh
    pairs = None
    if seen is not None:
        groups = (seen[at : at + 4] for at in range(0, len(seen), 4))
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
    judged, seen = _pair(item.judged), _pair(item.seen)
    if judged is None or item.log_worse is None or item.log_fine is None:
        return TestMemory()
    return TestMemory(seen, judged, item.log_worse, item.log_fine)


def _numbers(pair: Pair) -> list[float]:
    return [pair.canary.n, pair.canary.total, pair.stable.n, pair.stable.total]


def _pair(numbers: list[float] | None) -> Pair | None:
    if not numbers or len(numbers) != 4:
        return None
    pair = Pair(Counts(*numbers[:2]), Counts(*numbers[2:]))
    return pair if pair.canary.possible and pair.stable.possible else None
