"""Evidence of an experiment: which arm is best, and which keep their guardrails. No I/O, no clock."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from learnloop_api.kinds.rollouts.experiment import Experiment, ExperimentGuardrail
from learnloop_operator.rollout.metrics.metric_type import Measure
from learnloop_operator.statistics.betting import NONE, Counts, log_e
from learnloop_operator.statistics.comparison import CREDIT, Bars, Pair, expected

BATCH = 4.0
GROWTH = 0.1
"""A look bets when each arm has BATCH new episodes on average, and all arms this share of those before: evidence is
written some dozens of times in an experiment, and not at every look."""


@dataclass(frozen=True, slots=True)
class ArmRecord:
    """Evidence of one arm; outcomes lie in 0..1, higher is better."""

    judged: Counts = NONE
    seen: Counts | None = None
    """The source's counters at the last look that bet; None: the next look starts over."""
    better: tuple[float, ...] = ()
    """Log e-values of "better than" each arm."""


@dataclass(frozen=True, slots=True)
class GuardrailEvidence:
    """Evidence of one arm and one guardrail; outcomes lie in 0..1, higher is better."""

    judged: Counts = NONE
    seen: Counts | None = None
    """The source's counters at the last look that bet; None: the next look starts over."""
    fine: float = 0.0
    """Log e-value of "not worse than stable by maxDrop"; stable's own stay 0."""
    worse: float = 0.0
    """Log e-value of "worse than stable by more"."""
    measure: Measure | None = None
    """Of stable's alone: fixed before the comparison began, from what stable had shown until then."""


Batch = dict[int, Counts]
"""New outcomes by arm."""
Seen = tuple[Counts | None, ...]
"""Counters by arm; None for arms that are out, or without a number."""
Record = TypeVar("Record", ArmRecord, GuardrailEvidence)


def fresh(arms: int) -> tuple[ArmRecord, ...]:
    """Records of arms without any evidence."""
    return tuple(ArmRecord(better=(0.0,) * arms) for _ in range(arms))


def bar(arms: int, alpha: float) -> float:
    """Log e-value at which one arm counts as better than another."""
    return math.log(2.0 * (arms - 1) / alpha)


def look(records: tuple[ArmRecord, ...], seen: Seen) -> tuple[ArmRecord, ...]:
    """The records after a look. Bets are made with what was known before the batch."""
    return _after(records, seen, lambda batch, index: _bet(records, batch, index))


def _after(records: tuple[Record, ...], seen: Seen, bet: Callable[[Batch, int], Record]) -> tuple[Record, ...]:
    batch = _new_batch(records, seen)
    if batch is None:
        return records
    if not batch:
        return tuple(replace(record, seen=counts) for record, counts in zip(records, seen, strict=True))
    # An arm that is silent at this look starts over at its next: the others' newer episodes do not match its own.
    return tuple(
        bet(batch, index) if index in batch else replace(record, seen=None) for index, record in enumerate(records)
    )


def _new_batch(known: Sequence[ArmRecord | GuardrailEvidence], seen: Seen) -> Batch | None:
    """Outcomes of the arms since the last look. None changes nothing: counters are impossible, or too little is new.
    Empty starts all arms over: one of them has no earlier look. A counter that fell is not a new beginning: of two
    Prometheus servers behind one address, the other one is a scrape behind."""
    now = {index: counts for index, counts in enumerate(seen) if counts is not None}
    if any(not counts.possible for counts in now.values()) or len(now) < 2:
        return None
    if any(known[index].seen is None for index in now):
        return {}
    batch = {index: counts.minus(known[index].seen or NONE) for index, counts in now.items()}
    if any(not counts.possible for counts in batch.values()):
        return None
    before = sum(known[index].judged.n for index in now)
    enough = sum(counts.n for counts in batch.values()) >= max(BATCH * len(now), GROWTH * before)
    return batch if enough else None


def _bet(records: tuple[ArmRecord, ...], batch: Batch, index: int) -> ArmRecord:
    record, own = records[index], batch[index]
    better = list(record.better)
    for other, counts in batch.items():
        if other != index:
            bets = expected(Pair(record.judged, records[other].judged))
            better[other] += log_e(own, counts, *bets, 0.0)
    return ArmRecord(record.judged.plus(own), (record.seen or NONE).plus(own), tuple(better))


def beaten_by(
    records: tuple[ArmRecord, ...],
    racing: frozenset[int],
    enough: float,
    least: float,
    fit: frozenset[int] | None = None,
) -> dict[int, int]:
    """Arms of the race that are proven worse, each with the arm that is proven better by most.

    `enough` is the bar, `least` the episodes both arms must have, `fit` the arms that may beat another (None: all).
    """
    ripe = sorted(index for index in racing if records[index].judged.n >= least)
    able = [index for index in ripe if fit is None or index in fit]
    result: dict[int, int] = {}
    for loser in ripe:
        stronger = [index for index in able if index != loser and records[index].better[loser] >= enough]
        if stronger:
            result[loser] = max(stronger, key=lambda index: records[index].better[loser])
    return result


def proven(records: tuple[ArmRecord, ...], best: int, worst: int, enough: float) -> bool:
    """Whether `best` is proven better than `worst`, directly or by way of arms in between."""
    reached, waiting = {best}, [best]
    while waiting:
        here = waiting.pop()
        onward = {index for index, log in enumerate(records[here].better) if log >= enough} - reached
        reached |= onward
        waiting.extend(onward)
    return worst in reached


# Guardrails: is an arm certainly not worse than stable by maxDrop, or is it certainly worse by more?
#
# For each challenger and guardrail two e-processes bet on the same batches, against "worse than stable by maxDrop or
# more" (`fine`) and against "worse by at most maxDrop" (`worse`). One may be proven, not both.
#
# Error budget: half of the experiment's alpha. A winner that breaks a guardrail must have been proven fine on the very
# one it breaks: with K-1 challengers each proof has alpha / (2 (K-1)), however many guardrails there are
# (intersection-union). An arm that keeps all of its guardrails is withdrawn if one of (K-1) G claims errs: each has
# alpha / (2 (K-1) G), by the union bound. Both hold however often one looks.


def bars(asked: Experiment) -> Bars:
    """Log e-values at which a guardrail is broken and holds, as derived above."""
    challengers, half = len(asked.arms), asked.alpha / 2.0
    return Bars(math.log(challengers * max(1, len(asked.guardrails)) / half), math.log(challengers / half))


def share_of_alpha(asked: Experiment) -> float:
    """The rest of alpha, for the comparison by the experiment's metric."""
    return asked.alpha / 2.0 if asked.guardrails else asked.alpha


def drop_of(guardrail: ExperimentGuardrail) -> float:
    """maxDrop on the scale 0..1."""
    where = guardrail.return_range
    return guardrail.max_drop / (where.highest - where.lowest if where else 1.0)


def look_at_guards(
    guards: tuple[GuardrailEvidence, ...], seen: Seen, drop: float, bar: Bars
) -> tuple[GuardrailEvidence, ...]:
    """All arms' guards, stable's first, after a look; without stable's number nothing is compared.

    Bets are made with what was known before the batch. Evidence for an arm beyond its bar is given away, so that an
    arm that turns bad late is not covered by its past.
    """
    if seen[0] is None:
        return guards
    return _after(guards, seen, lambda batch, index: _bet_on_guard(guards, batch, index, drop, bar))


def _bet_on_guard(
    guards: tuple[GuardrailEvidence, ...], batch: Batch, index: int, drop: float, bar: Bars
) -> GuardrailEvidence:
    guard, own, base = guards[index], batch[index], batch.get(0, NONE)
    fine, worse = guard.fine, guard.worse
    if index:
        arm, stable = expected(Pair(guard.judged, guards[0].judged))
        fine = min(fine + log_e(own, base, arm, stable, -drop), bar.fine + CREDIT)
        worse += log_e(base, own, stable, arm, drop)
    judged, counted = guard.judged.plus(own), (guard.seen or NONE).plus(own)
    return replace(guard, judged=judged, seen=counted, fine=fine, worse=worse)


def standing(guard: GuardrailEvidence, bar: Bars) -> str:
    """`holds`, `broken` or `unproven`."""
    if guard.worse >= bar.worse:
        return "broken"
    return "holds" if guard.fine >= bar.fine else "unproven"
