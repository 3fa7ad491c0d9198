"""Which arm is best? Evidence for every ordered pair of arms, and the elimination that it allows.

For arms i and j an e-process bets against "the mean of i is at most that of j" (sequential.betting; both arms play at
the same time, their means may drift). Arm j is beaten as soon as one that is still in the race is proven better. The
last one in the race has won.

Error budget for K arms: with bar log(2 (K-1) / alpha) the chance that a winner is named which is not better than all
others is at most alpha, however often one looks. If one arm is best, it has to be beaten first: K-1 false claims, each
at most alpha / (2 (K-1)) by Ville's inequality. If several share the first place, at least one of any two of them has
to be beaten: 2 (K-1) such claims.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from learnloop_operator.statistics.betting import NONE, Counts, log_e
from learnloop_operator.statistics.comparison import Pair, expected

BATCH = 4.0
GROWTH = 0.1
"""A look that bets needs so many new episodes for each arm, and this share of those before: evidence is written some
dozens of times an experiment and not at every look."""


@dataclass(frozen=True, slots=True)
class ArmRecord:
    """What is known of one arm; outcomes lie in 0..1, higher is better."""

    judged: Counts = NONE
    seen: Counts | None = None
    """What the source had counted at the last look that took anything over; None: the next look begins anew."""
    better: tuple[float, ...] = ()
    """Log e-values of "better than" each arm."""


class PairEvidence(Protocol):
    """What batches are taken from: outcomes judged so far, and what the source had counted then."""

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
    # An arm that is silent at this look begins anew at its next: what it plays meanwhile meets nobody at the same time.
    return tuple(
        _bet(tallies, batch, index) if index in batch else replace(tally, seen=None)
        for index, tally in enumerate(tallies)
    )


def new_batch(known: Sequence[PairEvidence], seen: tuple[Counts | None, ...]) -> Batch | None:
    """What the arms have played since the last look. None: leave everything as it is, for counters are impossible or
    too little is new. Empty: an arm has not been looked at, and all begin anew. A counter that fell is not a beginning:
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
    found: dict[int, int] = {}
    for loser in ripe:
        stronger = [index for index in able if index != loser and tallies[index].better[loser] >= enough]
        if stronger:
            found[loser] = max(stronger, key=lambda index: tallies[index].better[loser])
    return found


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
    for other, theirs in batch.items():
        if other != mine:
            bets = expected(Pair(tally.judged, tallies[other].judged))
            better[other] += log_e(batch[mine], theirs, *bets, 0.0)
    seen = (tally.seen or NONE).plus(batch[mine])
    return ArmRecord(tally.judged.plus(batch[mine]), seen, tuple(better))
