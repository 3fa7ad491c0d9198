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
from dataclasses import dataclass, replace

from learnloop_operator.core.sequential.betting import NONE, Counts, log_e
from learnloop_operator.core.sequential.comparison import JITTER, Pair, expected

BATCH = 4.0
GROWTH = 0.1
"""A look that bets needs so many new episodes for each arm, and this share of those before: evidence is written some
dozens of times an experiment and not at every look."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of one arm; outcomes lie in 0..1, higher is better."""

    judged: Counts = NONE
    seen: Counts | None = None
    """What the source had counted at the last look that took anything over; None: the next look begins anew."""
    better: tuple[float, ...] = ()
    """Log e-values of "better than" each arm."""


def fresh(arms: int) -> tuple[Tally, ...]:
    """Nothing known of any arm."""
    return tuple(Tally(better=(0.0,) * arms) for _ in range(arms))


def bar(arms: int, alpha: float) -> float:
    """Log e-value at which one arm counts as better than another."""
    return math.log(2.0 * (arms - 1) / alpha)


def look(tallies: tuple[Tally, ...], seen: tuple[Counts | None, ...]) -> tuple[Tally, ...]:
    """The tallies after a look at counters that now read `seen`; None for arms that are out.

    Impossible counters and too few new episodes leave everything as it is; a counter that fell, or an arm that has not
    been looked at, is a new beginning for all. Bets are made with what was known before the batch.
    """
    here = [index for index, counts in enumerate(seen) if counts is not None]
    now = {index: counts for index, counts in enumerate(seen) if counts is not None}
    if any(not counts.possible for counts in now.values()) or len(here) < 2:
        return tallies
    if any(_begins_anew(tallies[index], now[index]) for index in here):
        return tuple(replace(tally, seen=seen[index]) for index, tally in enumerate(tallies))
    batch = {index: now[index].minus(tallies[index].seen or NONE) for index in here}
    if any(not counts.possible for counts in batch.values()):
        return tallies
    known = sum(tallies[index].judged.n for index in here)
    if sum(counts.n for counts in batch.values()) < max(BATCH * len(here), GROWTH * known):
        return tallies
    return tuple(_bet(tallies, batch, index) if index in batch else tally for index, tally in enumerate(tallies))


def beaten_by(tallies: tuple[Tally, ...], racing: frozenset[int], enough: float, least: float) -> dict[int, int]:
    """Arms of the race that are proven worse, each with the arm that is proven better by most.

    `enough` is the bar, `least` the episodes both arms must have.
    """
    ripe = sorted(index for index in racing if tallies[index].judged.n >= least)
    found: dict[int, int] = {}
    for loser in ripe:
        stronger = [index for index in ripe if index != loser and tallies[index].better[loser] >= enough]
        if stronger:
            found[loser] = max(stronger, key=lambda index: tallies[index].better[loser])
    return found


def _bet(tallies: tuple[Tally, ...], batch: dict[int, Counts], mine: int) -> Tally:
    tally = tallies[mine]
    better = list(tally.better)
    for other, theirs in batch.items():
        if other != mine:
            bets = expected(Pair(tally.judged, tallies[other].judged))
            better[other] += log_e(batch[mine], theirs, *bets, 0.0)
    seen = (tally.seen or NONE).plus(batch[mine])
    return Tally(tally.judged.plus(batch[mine]), seen, tuple(better))


def _begins_anew(tally: Tally, now: Counts) -> bool:
    return tally.seen is None or now.n < tally.seen.n - JITTER
