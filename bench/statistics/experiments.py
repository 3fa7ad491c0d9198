"""Experiments of several arms by the operator's own race: how often one of identical arms wins, how soon a better."""

from dataclasses import dataclass

import numpy as np

from bench.statistics.evidence import Floats
from learnloop_api.kinds.rollouts.experiment import Experiment
from learnloop_operator.rollout.experiments import evidence as experiment_evidence
from learnloop_operator.rollout.experiments.evidence import bar, beaten_by, fresh, look
from learnloop_operator.statistics.betting import Counts

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
        seen = tuple(
            Counts(n, total) if arm in racing else None for arm, (n, total) in enumerate(zip(played, won, strict=True))
        )
        tallies = look(tallies, seen)
        racing -= frozenset(beaten_by(tallies, racing, bar(size, alpha), MIN_EPISODES))
        if len(racing) <= 1:
            return Race(next(iter(racing), None), done)
        new = source.multinomial(PER_LOOK, share)
        played, won = played + new, won + source.binomial(new, chances)
    return Race(None, episodes)


def false_winners(arms: int, alpha: float, runs: int, episodes: int) -> float:
    """Share of experiments with `arms` identical arms that name a winner."""
    found = [race([0.7] * arms, alpha, episodes, seed) for seed in range(runs)]
    return sum(one.winner is not None for one in found) / runs


def right_winners(chances: list[float], alpha: float, runs: int, episodes: int) -> tuple[float, float | None]:
    """Share of experiments that name the best arm, and the median episodes of all arms until they did."""
    best = int(np.argmax(chances))
    found = [one for seed in range(runs) if (one := race(chances, alpha, episodes, 10_000 + seed)).winner == best]
    return len(found) / runs, float(np.median([one.episodes for one in found])) if found else None


def guarded_race(chances: list[float], calm: list[float], asked: Experiment, episodes: int, seed: int) -> Race:
    """The same with one guardrail, whose chances are `calm`: who breaks it is out, who is unproven beats nobody."""
    size, source, bars = len(chances), np.random.default_rng(seed), experiment_evidence.bars(asked)
    tallies, racing, guards = fresh(size), frozenset(range(size)), (experiment_evidence.GuardrailEvidence(),) * size
    enough = bar(size, experiment_evidence.share_of_alpha(asked))
    drop = experiment_evidence.drop_of(asked.guardrails[0])
    played, won, kept = np.zeros(size), np.zeros(size), np.zeros(size)
    for done in range(0, episodes, PER_LOOK):
        guards = experiment_evidence.look_at_guards(guards, _seen(played, kept, racing), drop, bars)
        standing = [experiment_evidence.standing(guard, bars) for guard in guards]
        racing -= {arm for arm in racing if arm and standing[arm] == "broken"}
        fit = frozenset(arm for arm in racing if not arm or standing[arm] == "holds")
        tallies = look(tallies, _seen(played, won, racing))
        racing -= frozenset(beaten_by(tallies, racing, enough, MIN_EPISODES, fit))
        if len(racing) == 1 and racing <= fit:
            return Race(next(iter(racing)), done)
        new = source.multinomial(PER_LOOK, np.full(size, 1.0 / size))
        played, won = played + new, won + source.binomial(new, chances)
        kept += source.binomial(new, calm)
    return Race(None, episodes)


def _seen(played: Floats, total: Floats, racing: frozenset[int]) -> tuple[Counts | None, ...]:
    """Stable, arm 0, plays to the end even when it is beaten."""
    return tuple(
        Counts(n, value) if arm in racing or not arm else None
        for arm, (n, value) in enumerate(zip(played, total, strict=True))
    )


def guarded_winners(
    chances: list[float], calm: list[float], asked: Experiment, runs: int, episodes: int
) -> tuple[dict[int | None, float], float | None]:
    """Share of experiments that each arm wins (None: nobody), and the median episodes of all arms until one did."""
    found = [guarded_race(chances, calm, asked, episodes, 20_000 + seed) for seed in range(runs)]
    won = [one.episodes for one in found if one.winner is not None]
    shares = {arm: sum(one.winner == arm for one in found) / runs for arm in (None, *range(len(chances)))}
    return shares, float(np.median(won)) if won else None
