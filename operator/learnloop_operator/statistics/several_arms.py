"""Pairwise evidence of several arms that serve at the same time: e-values of "this arm is better than that one"."""

import math
from dataclasses import dataclass, replace

from learnloop_operator.statistics import canary_against_stable, e_values

BATCH = 4.0
GROWTH = 0.1
"""A look bets when each arm has BATCH new episodes on average, and all arms this share of those before: evidence is
written some dozens of times in an experiment, and not at every look."""


@dataclass(frozen=True, slots=True)
class ArmRecord:
    """Evidence of one arm; outcomes lie in 0..1, higher is better."""

    judged: e_values.Counts = e_values.NONE
    counted: e_values.Counts | None = None
    """The source's counters at the last look that bet; None: the next look starts over."""
    better: tuple[float, ...] = ()
    """Log e-values of "better than" each arm."""


Batch = dict[int, e_values.Counts]
"""New outcomes by arm."""
Counters = tuple[e_values.Counts | None, ...]
"""Counters by arm; None for arms that are out, or without a number."""


def fresh(arms: int) -> tuple[ArmRecord, ...]:
    """Records of arms without any evidence."""
    return tuple(ArmRecord(better=(0.0,) * arms) for _ in range(arms))


def bar(arms: int, alpha: float) -> float:
    """Log e-value at which one arm counts as better than another."""
    return math.log(2.0 * (arms - 1) / alpha)


def look(records: tuple[ArmRecord, ...], counters: Counters) -> tuple[ArmRecord, ...]:
    """The records after a look. Bets are made with what was known before the batch."""
    batch = _new_batch(records, counters)
    if batch is None:
        return records
    if not batch:
        return tuple(replace(record, counted=counts) for record, counts in zip(records, counters, strict=True))
    # An arm that is silent at this look starts over at its next: the others' newer episodes do not match its own.
    return tuple(
        _bet(records, batch, index) if index in batch else replace(record, counted=None)
        for index, record in enumerate(records)
    )


def _new_batch(records: tuple[ArmRecord, ...], counters: Counters) -> Batch | None:
    """Outcomes of the arms since the last look. None changes nothing: counters are impossible, or too little is new.
    Empty starts all arms over: one of them has no earlier look. A counter that fell is not a new beginning: of two
    Prometheus servers behind one address, the other one is a scrape behind."""
    now = {index: counts for index, counts in enumerate(counters) if counts is not None}
    if any(not counts.possible for counts in now.values()) or len(now) < 2:
        return None
    if any(records[index].counted is None for index in now):
        return {}
    batch = {index: counts.minus(records[index].counted or e_values.NONE) for index, counts in now.items()}
    if any(not counts.possible for counts in batch.values()):
        return None
    before = sum(records[index].judged.n for index in now)
    enough = sum(counts.n for counts in batch.values()) >= max(BATCH * len(now), GROWTH * before)
    return batch if enough else None


def _bet(records: tuple[ArmRecord, ...], batch: Batch, index: int) -> ArmRecord:
    record, own = records[index], batch[index]
    better = list(record.better)
    for other, counts in batch.items():
        if other != index:
            bets = canary_against_stable.expected(canary_against_stable.Pair(record.judged, records[other].judged))
            better[other] += e_values.log_e(own, counts, *bets, 0.0)
    return ArmRecord(record.judged.plus(own), (record.counted or e_values.NONE).plus(own), tuple(better))


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
