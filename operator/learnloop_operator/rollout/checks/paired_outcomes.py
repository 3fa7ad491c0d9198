"""A ratio's memory: both arms' outcomes of the same times, and the evidence that they gave.

A batch is what both arms finished between two looks at one weight, while their endings are steady
(unfinished_episodes.py). An episode counts when it ends, in the arm that it was opened on. The comparison waits until
minEpisodes of the canary have ended at the present weight. No batch reaches over a change of the weight, and there is
none while only one arm gets episodes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from learnloop_api.kinds.rollouts.analysis import Analysis, MetricThreshold
from learnloop_operator.rollout.evidence import ArmEvidence, Evidence, number
from learnloop_operator.rollout.metrics.all_types import type_of
from learnloop_operator.statistics.betting import Counts
from learnloop_operator.statistics.ratio import Row, added, after

GROWTH = 0.04
"""A batch needs so many new outcomes of the canary for each that was compared, and one at least."""

Seen = tuple[tuple[Counts, Counts], ...]
"""What the source had counted of both arms, canary first, of each quantity."""


@dataclass(frozen=True, slots=True)
class PairedOutcomes:
    """One metric with ratios. `claim`: its bounds in words, so that a changed metric starts over."""

    name: str
    claim: str
    rows: tuple[Row, ...] = ()
    """None before the comparison began. Of returns without a range the first is their sum, which gets no bet."""
    seen: Seen | None = None
    """As counted at the last look that took anything over; None: the next look starts over."""
    weight: int = 0
    """The canary's when `start` was counted."""
    start: float = 0.0
    """Episodes of the canary that had ended when its weight became that."""
    bounds: tuple[float, ...] = ()
    """Fixed when the comparison begins: of latency one, in seconds; of returns those around stable's median."""
    block: float = 1.0
    """So many events count as one outcome (metrics/all_types.py)."""

    @property
    def compared(self) -> float:
        """Outcomes of the canary that were compared with stable's of the same time."""
        return self.rows[0].n if self.rows else 0.0


def bounds_text(metric: MetricThreshold) -> str:
    """The bounds of a threshold in words."""
    return _in_words(metric.type, metric.min, metric.max, metric.min_ratio, metric.max_ratio)


@lru_cache(maxsize=1024)
def _in_words(
    kind: str, least: float | None, most: float | None, least_ratio: float | None, most_ratio: float | None
) -> str:
    bounds = (
        ("at least", least, ""),
        ("at most", most, ""),
        ("at least", least_ratio, "× stable"),
        ("at most", most_ratio, "× stable"),
    )
    parts = [f"{word} {number(bound)}{unit}" for word, bound, unit in bounds if bound is not None]
    return f"{kind} {' and '.join(parts)}"


def has_ratio(metric: MetricThreshold) -> bool:
    """Whether the metric compares the arms by a ratio whose evidence is kept."""
    return (metric.min_ratio is not None or metric.max_ratio is not None) and type_of(metric).is_counted(metric)


def known(analysis: Analysis, trials: Iterable[PairedOutcomes]) -> Mapping[str, PairedOutcomes]:
    """By name, those of what is asked now."""
    result = {(trial.name, trial.claim): trial for trial in trials}
    wanted = (metric for metric in analysis.metrics if has_ratio(metric))
    return {item.name: result[item.name, text] for item in wanted if (item.name, text := bounds_text(item)) in result}


def looked(
    analysis: Analysis,
    before: Iterable[PairedOutcomes],
    evidence: Evidence,
    subject: str,
    reference: str,
    weight: int,
    *,
    steady: bool = True,
) -> tuple[PairedOutcomes, ...]:
    """Every ratio's memory after one look, the canary at `weight`. Missing evidence leaves all of them as they are."""
    old, result = known(analysis, before), []
    canary, stable = evidence.arms.get(subject), evidence.arms.get(reference)
    torn = bool((canary and canary.gap) or (stable and stable.gap))
    for metric in analysis.metrics:
        if not has_ratio(metric):
            continue
        trial = old.get(metric.name) or PairedOutcomes(metric.name, bounds_text(metric))
        if not 0 < weight < 100 or torn:
            trial = replace(trial, seen=None, weight=weight if trial.rows else 0)
        elif canary is not None and stable is not None:
            trial = _at_weight(trial, canary, weight)
            trial = _look(metric, trial, canary, stable) if steady else replace(trial, seen=None)
        result.append(trial)
    return tuple(result)


def _at_weight(trial: PairedOutcomes, canary: ArmEvidence, weight: int) -> PairedOutcomes:
    """A ratio that has compared nothing yet counts from the first episode on: no weight came before."""
    if trial.weight == weight and trial.start <= canary.episodes:
        return trial
    fresh = not trial.rows and trial.weight == 0
    return replace(trial, seen=None, weight=weight, start=0.0 if fresh else float(canary.episodes))


def _look(metric: MetricThreshold, trial: PairedOutcomes, canary: ArmEvidence, stable: ArmEvidence) -> PairedOutcomes:
    if canary.episodes - trial.start < metric.min_episodes:
        return trial
    fixed = trial if trial.rows else _begun(metric, trial, stable)
    now = quantities(metric, fixed, canary, stable) if fixed else None
    if fixed is None or now is None:
        return trial
    if fixed.seen is None:
        return replace(fixed, rows=fixed.rows or tuple(_first(stable) for _, stable in now), seen=now)
    batch = tuple((new[0].minus(old[0]), new[1].minus(old[1])) for new, old in zip(now, fixed.seen, strict=True))
    enough = max(1.0, GROWTH * fixed.compared)
    if any(a.n < enough or b.n < 1.0 for a, b in batch):
        return trial
    aside = type_of(metric).first_bet_on
    bet_on = batch[aside:]
    if any(not (a.possible and b.possible) for a, b in bet_on):
        return trial
    lowest, highest = type_of(metric).ratio_bars(metric)
    rows = [added(row, a, b) for row, (a, b) in zip(fixed.rows[:aside], batch[:aside], strict=True)]
    rows += [after(row, a, b, lowest, highest) for row, (a, b) in zip(fixed.rows[aside:], bet_on, strict=True)]
    return replace(fixed, rows=tuple(rows), seen=now)


def _begun(metric: MetricThreshold, trial: PairedOutcomes, stable: ArmEvidence) -> PairedOutcomes | None:
    """The memory with what is fixed by what stable has shown until now; None where that does not suffice."""
    basis = type_of(metric).ratio_basis(metric, stable)
    return replace(trial, bounds=basis[0], block=basis[1]) if basis else None


def quantities(metric: MetricThreshold, trial: PairedOutcomes, canary: ArmEvidence, stable: ArmEvidence) -> Seen | None:
    """Counts of both arms for every quantity compared; None where a number is missing or invalid."""
    kind = type_of(metric)
    one, other = (kind.ratio_counts(metric, arm, trial.bounds, trial.block) for arm in (canary, stable))
    return tuple(zip(one, other, strict=True)) if one and other else None


def _first(stable: Counts) -> Row:
    """Bets begin at stable's mean so far. Of a quantity without bets it means nothing, and does no harm."""
    return Row(level=stable.total / stable.n if stable.n > 0.0 else 0.0)
