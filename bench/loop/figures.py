"""The figures of the loop's turns, without any I/O."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, stdev
from typing import Any

RESAMPLES = 2000


@dataclass(frozen=True)
class Played:
    """Completed episodes of one policy revision in front of its users."""

    returns: list[float] = field(default_factory=list)
    successes: list[bool] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    @property
    def mean(self) -> float | None:
        """Mean return; None of no episode."""
        return fmean(self.returns) if self.returns else None

    @property
    def success(self) -> float | None:
        """Share of the episodes that succeeded; None where none has a verdict."""
        return fmean(self.successes) if self.successes else None

    def is_sure(self, share: float, most: int) -> bool:
        """Is the mean's standard error at most that share of the mean, or are there that many episodes?"""
        if len(self.returns) >= most:
            return True
        return len(self.returns) > 1 and stdev(self.returns) / sqrt(len(self.returns)) <= share * abs(
            fmean(self.returns)
        )


@dataclass(frozen=True)
class Turn:
    """One training run and what became of it. `served`: of its policy, where it was promoted; `previous`: of the one
    that served before; `read`: episodes of the log that it learned from."""

    agent: str
    number: int
    proven: float | None
    previous: Played
    served: Played | None
    seconds: float
    artifact: str | None
    why: str
    read: int = 0

    @property
    def promoted(self) -> bool:
        """Does everybody get its policy?"""
        return self.served is not None

    def as_figures(self) -> dict[str, Any]:
        """As the last line has it."""
        return {
            "agent": self.agent,
            "turn": self.number,
            "proven": _rounded(self.proven),
            "served": _rounded(self.served.mean) if self.served else None,
            "previous": _rounded(self.previous.mean),
            "success": _rounded(self.served.success) if self.served else None,
            "episodes": len(self.served.returns) if self.served else 0,
            "seconds": round(self.seconds, 1),
            "promoted": self.promoted,
            "read": self.read,
            "why": self.why,
        }


def served_to_proven(turn: Turn) -> float | None:
    """Served return over the proven one; of a negative proven return, 1 less what is missing in units of it."""
    served = turn.served.mean if turn.served else None
    if served is None or turn.proven is None or turn.proven == 0:
        return None
    return served / turn.proven if turn.proven > 0 else 1.0 - (turn.proven - served) / -turn.proven


def equal_weights(turns: Sequence[Turn]) -> int:
    """Runs whose artifact an earlier run of the same agent had made already."""
    pairs: set[tuple[str, str]] = set()
    count = 0
    for turn in turns:
        if turn.artifact is not None:
            count += (turn.agent, turn.artifact) in pairs
            pairs.add((turn.agent, turn.artifact))
    return count


def worse(turn: Turn) -> bool:
    """Was a policy promoted that serves worse than the one before: is 0 above the 95 % interval of the difference?"""
    if turn.served is None or len(turn.served.returns) < 2 or len(turn.previous.returns) < 2:
        return False
    chance = random.Random(turn.number)
    after, before = turn.served.returns, turn.previous.returns
    resampled = sorted(
        fmean(chance.choices(after, k=len(after))) - fmean(chance.choices(before, k=len(before)))
        for _ in range(RESAMPLES)
    )
    return resampled[int(0.975 * RESAMPLES)] < 0


def gains(turns: Sequence[Turn], complete: Sequence[str]) -> tuple[float | None, float | None]:
    """From what served before the first turn to what serves after the last one, as means over the agents: the gain in
    the share of successes, in points, and the share of steps saved by agents that end an episode by completing it."""
    success, steps = [], []
    for agent in dict.fromkeys(turn.agent for turn in turns):
        own = [turn for turn in turns if turn.agent == agent]
        first = own[0].previous
        last = next((turn.served for turn in reversed(own) if turn.served is not None), first)
        if first.success is not None and last.success is not None:
            success.append(last.success - first.success)
        if agent in complete and first.steps and last.steps:
            steps.append(1.0 - fmean(last.steps) / fmean(first.steps))
    return (fmean(success) if success else None), (fmean(steps) if steps else None)


def summary(turns: Sequence[Turn], complete: Sequence[str]) -> dict[str, Any]:
    """The named figures."""
    ratios = [ratio for turn in turns if (ratio := served_to_proven(turn)) is not None]
    success, completion = gains(turns, complete)
    return {
        "turns": [turn.as_figures() for turn in turns],
        "served_vs_proven_worst": _rounded(min(ratios)) if ratios else None,
        "turns_with_equal_weights": equal_weights(turns),
        "success_gain": _rounded(success),
        "completion_time_gain": _rounded(completion),
        "worse_promotions": sum(map(worse, turns)),
        "promotions": sum(turn.promoted for turn in turns),
    }


def missed(figures: dict[str, Any], agents: int, turns: int) -> list[str]:
    """The goals that were not reached, with their figures."""
    goals = {
        f"{agents} agents × {turns} turns": len(figures["turns"]) >= agents * turns,
        "served_vs_proven_worst at least 0.95": (figures["served_vs_proven_worst"] or 0.0) >= 0.95,
        "turns_with_equal_weights 0": figures["turns_with_equal_weights"] == 0,
        "success_gain at least 0.30": (figures["success_gain"] or 0.0) >= 0.30,
        "completion_time_gain at least 0.20": (figures["completion_time_gain"] or 0.0) >= 0.20,
        "worse_promotions 0": figures["worse_promotions"] == 0,
    }
    return [goal for goal, reached in goals.items() if not reached]


def log_was_read(turns: Sequence[Turn], wanted: int, episodes: int) -> list[str]:
    """The goals that turns did not reach whose log grows by so many episodes in each."""
    goals = {
        f"{wanted} turns": len(turns) >= wanted,
        "each run made a policy": all(turn.artifact is not None for turn in turns),
        "each run read the whole log": all(turn.read >= turn.number * episodes for turn in turns),
        "worse_promotions 0": not any(map(worse, turns)),
    }
    return [goal for goal, reached in goals.items() if not reached]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
