"""Evidence of an experiment: which arm is best, and which keep their guardrails."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from learnloop_api.kinds.rollouts.experiment import AnyExperiment, ExperimentGuardrail
from learnloop_operator.rollout.metrics.metric_type import Measure
from learnloop_operator.statistics.betting import NONE, Counts, log_e
from learnloop_operator.statistics.comparison import CREDIT, Bars, Pair, expected

BATCH = 4.0
GROWTH = 0.1
"""A look that bets needs so many new episodes for each arm, and this share of those before: evidence is written some
dozens of times an experiment and not at every look."""


@dataclass(frozen=True, slots=True)
class ArmRecord:
    """Evidence of one arm; outcomes lie in 0..1, higher is better."""

    judged: Counts = NONE
    seen: Counts | None = None
    """What the source had counted at the last look that took anything over; None: the next look starts over."""
    better: tuple[float, ...] = ()
    """Log e-values of "better than" each arm."""


class PairEvidence(Protocol):
    """Source of batches: outcomes judged so far, and the source's counters then."""

    @property
    def judged(self) -> Counts: ...

    @property
    def seen(self) -> Counts | None: ...


Batch = dict[int, Counts]
"""New outcomes by arm."""


def fresh(arms: int) -> tuple[ArmRecord, ...]:
    """Nothing known of any arm."""
    return tuple(ArmRecord(better=(0.0,) * arms) for _ in range(arms))


def bar(arms: int, alpha: float) -> float:
    """Log e-value at which one arm counts as better than another."""
    return math.log(2.0 * (arms - 1) / alpha)


def look(tallies: tuple[ArmRecord, ...], seen: tuple[Counts | None, ...]) -> tuple[ArmRecord, ...]:
    """The tallies after a look at counters that now read `seen`; None for arms that are out. Bets are made with what
    was known before the batch."""
    batch = new_batch(tallies, seen)
    if batch is None:
        return tallies
    if not batch:
        return tuple(replace(tally, seen=seen[index]) for index, tally in enumerate(tallies))
    # An arm that is silent at this look starts over at its next: no other arm plays at the same time meanwhile.
    return tuple(
        _bet(tallies, batch, index) if index in batch else replace(tally, seen=None)
        for index, tally in enumerate(tallies)
    )


def new_batch(known: Sequence[PairEvidence], seen: tuple[Counts | None, ...]) -> Batch | None:
    """Outcomes of the arms since the last look. None: leave everything as it is, for counters are impossible or
    too little is new. Empty: an arm has not been looked at, and all start over. A counter that fell is not a beginning:
    of two Prometheus servers behind one address the other one is a scrape behind."""
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


def beaten_by(
    tallies: tuple[ArmRecord, ...],
    racing: frozenset[int],
    enough: float,
    least: float,
    fit: frozenset[int] | None = None,
) -> dict[int, int]:
    """Arms of the race that are proven worse, each with the arm that is proven better by most.

    `enough` is the bar, `least` the episodes both arms must have, `fit` the arms that may beat another, which are all
    when left out.
    """
    ripe = sorted(index for index in racing if tallies[index].judged.n >= least)
    able = [index for index in ripe if fit is None or index in fit]
    result: dict[int, int] = {}
    for loser in ripe:
        stronger = [index for index in able if index != loser and tallies[index].better[loser] >= enough]
        if stronger:
            result[loser] = max(stronger, key=lambda index: tallies[index].better[loser])
    return result


def proven(tallies: tuple[ArmRecord, ...], best: int, worst: int, enough: float) -> bool:
    """Whether `best` is proven better than `worst`, itself or by way of arms in between."""
    reached, waiting = {best}, [best]
    while waiting:
        here = waiting.pop()
        onward = {index for index, log in enumerate(tallies[here].better) if log >= enough} - reached
        reached |= onward
        waiting.extend(onward)
    return worst in reached


def _bet(tallies: tuple[ArmRecord, ...], batch: Batch, mine: int) -> ArmRecord:
    tally = tallies[mine]
    better = list(tally.better)
    for other, others_counts in batch.items():
        if other != mine:
            bets = expected(Pair(tally.judged, tallies[other].judged))
            better[other] += log_e(batch[mine], others_counts, *bets, 0.0)
    counted = (tally.seen or NONE).plus(batch[mine])
    return ArmRecord(tally.judged.plus(batch[mine]), counted, tuple(better))


# Guardrails: is an arm certainly not worse than stable by maxDrop, or is it certainly worse by more?
#
# For each challenger and guardrail two e-processes bet on the same batches (sequential.betting), against "worse than
# stable by maxDrop or more" (`fine`) and against "worse by at most maxDrop" (`worse`). One may be proven, not both.
#
# Error budget: half of the experiment's alpha. A winner that breaks a guardrail must have been proven fine on the very
# one it breaks: with K-1 challengers each proof has alpha / (2 (K-1)), however many guardrails there are
# (intersection-union). An arm that keeps all of its guardrails is withdrawn if one of (K-1) G claims errs: each has
# alpha / (2 (K-1) G), by the union bound. Both hold however often one looks.


@dataclass(frozen=True, slots=True)
class GuardrailEvidence:
    """Evidence of one arm and one guardrail; outcomes lie in 0..1, higher is better."""

    judged: Counts = NONE
    seen: Counts | None = None
    """What the source had counted at the last look that took anything over; None: the next look starts over."""
    fine: float = 0.0
    """Log e-value of "not worse than stable by maxDrop"; stable's own stay 0."""
    worse: float = 0.0
    """Log e-value of "worse than stable by more"."""
    measure: Measure | None = None
    """Of stable's alone: what was fixed, by what it had shown until then, before the comparison began."""


def bars(asked: AnyExperiment) -> Bars:
    """Log e-values at which a guardrail holds and is broken, as the module's head derives them."""
    challengers, half = asked.challengers, asked.alpha / 2.0
    return Bars(math.log(challengers * max(1, len(asked.guardrails)) / half), math.log(challengers / half))


def share_of_alpha(asked: AnyExperiment) -> float:
    """The rest of alpha, for the comparison by the experiment's metric."""
    return asked.alpha / 2.0 if asked.guardrails else asked.alpha


def drop_of(guardrail: ExperimentGuardrail) -> float:
    """maxDrop on the scale 0..1."""
    where = guardrail.return_range
    return guardrail.max_drop / (where.highest - where.lowest if where else 1.0)


def look_at_guards(
    guards: tuple[GuardrailEvidence, ...], seen: tuple[Counts | None, ...], drop: float, bar: Bars
) -> tuple[GuardrailEvidence, ...]:
    """All arms' guards, stable's first, after a look at counters that now read `seen`; None for arms that are out, or
    without a number: without stable's nothing is compared.

    Bets are made with what was known before the batch. What speaks for an arm beyond its bar is given away, so that
    an arm that turns bad late is not covered by its past.
    """
    if seen[0] is None:
        return guards
    batch = new_batch(guards, seen)
    if batch is None:
        return guards
    if not batch:
        return tuple(replace(guard, seen=counts) for guard, counts in zip(guards, seen, strict=True))
    # An arm that is silent at this look starts over at its next: stable's newer episodes do not match them.
    return tuple(
        _bet_on_guard(guards, batch, index, drop, bar) if index in batch else replace(guard, seen=None)
        for index, guard in enumerate(guards)
    )


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
