"""Experiments of several arms by the operator's own race: how often one of identical arms wins, how soon a better."""

from dataclasses import dataclass

import numpy as np

from learnloop_operator.statistics.e_values import Counts
from learnloop_operator.statistics.several_arms import bar, beaten_by, fresh, look

MIN_EPISODES = 50
PER_LOOK = 25


@dataclass(frozen=True, slots=True)
class Race:
    """Index of the arm that won, if one did, and the episodes of all arms by then."""

    winner: int | None
    episodes: int


def race(chances: list[float], alpha: float, episodes: int, seed: int) -> Race:
    """One experiment with an even split, looked at every `PER_LOOK` episodes until `episodes`."""
    size, source = len(chances), np.random.default_rng(seed)
    tallies, racing = fresh(size), frozenset(range(size))
    played, won = np.zeros(size), np.zeros(size)
    share = np.full(size, 1.0 / size)
    for done in range(0, episodes, PER_LOOK):
        counts = tuple(
            Counts(n, total) if arm in racing else None for arm, (n, total) in enumerate(zip(played, won, strict=True))
        )
        tallies = look(tallies, counts)
        racing -= frozenset(beaten_by(tallies, racing, bar(size, alpha), MIN_EPISODES))
        if len(racing) <= 1:
            return Race(next(iter(racing), None), done)
        new = source.multinomial(PER_LOOK, share)
        played, won = played + new, won + source.binomial(new, chances)
    return Race(None, episodes)


def false_winners(arms: int, alpha: float, runs: int, episodes: int) -> float:
    """Share of experiments with `arms` identical arms that name a winner."""
    races = [race([0.7] * arms, alpha, episodes, seed) for seed in range(runs)]
    return sum(one.winner is not None for one in races) / runs


def right_winners(chances: list[float], alpha: float, runs: int, episodes: int) -> tuple[float, float | None]:
    """Share of experiments that name the best arm, and the median episodes of all arms until they did."""
    best = int(np.argmax(chances))
    wins = [one for seed in range(runs) if (one := race(chances, alpha, episodes, 10_000 + seed)).winner == best]
    return len(wins) / runs, float(np.median([one.episodes for one in wins])) if wins else None
