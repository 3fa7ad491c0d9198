"""One reward of a task divided among the agents that took part: pure functions. The parts always add up to the reward.

What a smaller team would have got is the value of that coalition. Known values are taken as they are. Of the others
nothing is assumed but that agents add up: each has the worth that fits the known values best.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from learnloop_api.kinds.reward_components import TeamCredit

Coalition = frozenset[str]
RIDGE = 1e-6
"""Keeps the fit from dividing by zero where two agents were never seen apart."""


@dataclass(frozen=True)
class Part:
    """One agent's part.

    Attributes:
        agent: whose it is.
        credit: of the task's reward.
        error: standard error of the sampling; 0 where nothing was sampled.
    """

    agent: str
    credit: float
    error: float = 0.0


@dataclass(frozen=True)
class Division:
    """The parts, in the order of the agents, and how they came about: the method that was used in the end."""

    method: str
    parts: tuple[Part, ...]
    samples: int = 0


def divide(
    rule: TeamCredit, reward: float, agents: Sequence[str], known: Mapping[Coalition, float], seed: str = ""
) -> Division:
    """Divides `reward` among `agents`, each named once.

    Args:
        rule: the method, and how many orders to sample.
        reward: of the whole team; finite.
        agents: who took part, one at least.
        known: what smaller teams got, or would have got. Without any, nobody can be told apart: equal parts.
        seed: the same seed samples the same orders.
    """
    whole = frozenset(agents)
    smaller = {team: value for team, value in known.items() if team < whole}
    if rule.method == "equal" or len(agents) == 1 or not any(smaller):
        return Division("equal", tuple(Part(agent, reward / len(agents)) for agent in agents))
    value = _values(reward, agents, smaller)
    if rule.method == "difference":
        return Division("difference", _differences(reward, agents, value))
    return _shapley(agents, value, rule.samples, seed)


def _differences(reward: float, agents: Sequence[str], value: Callable[[Coalition], float]) -> tuple[Part, ...]:
    """What the team has with each agent and not without it (Wolpert & Tumer, 2002). These do not add up to the reward,
    so what is over or missing is shared equally, as non-separable costs are (Moulin, J. Economic Theory 36, 1985)."""
    whole = frozenset(agents)
    own = [reward - value(whole - {agent}) for agent in agents]
    rest = (reward - math.fsum(own)) / len(agents)
    return tuple(Part(agent, part + rest) for agent, part in zip(agents, own, strict=True))


def _shapley(agents: Sequence[str], value: Callable[[Coalition], float], samples: int, seed: str) -> Division:
    """The mean of what each agent adds, over orders in which they might have come (Shapley, 1953). All orders where
    they are no more than `samples`; else a sample, each order beside its reverse (Castro et al., Computers & Operations
    Research 36, 2009)."""
    every = math.factorial(len(agents)) if len(agents) < 12 else math.inf
    exact = every <= samples
    orders: Iterable[tuple[tuple[str, ...], ...]]
    orders = ((order,) for order in permutations(agents)) if exact else _pairs(agents, max(2, samples // 2), seed)
    added: list[list[float]] = []
    for block in orders:
        gains = [_gains(order, value) for order in block]
        added.append([math.fsum(gain[agent] for gain in gains) / len(gains) for agent in agents])
    means = [math.fsum(column) / len(added) for column in zip(*added, strict=True)]
    errors = [0.0] * len(agents)
    if not exact:
        spread = np.asarray(added).std(axis=0, ddof=1) / math.sqrt(len(added))
        errors = [float(error) for error in spread]
    # What no agent at all would have got is nobody's merit: it is shared equally.
    rest = value(frozenset()) / len(agents)
    parts = (Part(*part) for part in zip(agents, (mean + rest for mean in means), errors, strict=True))
    return Division("shapley", tuple(parts), len(added) * (1 if exact else 2))


def _pairs(agents: Sequence[str], count: int, seed: str) -> Iterable[tuple[tuple[str, ...], ...]]:
    source = random.Random(seed)
    for _ in range(count):
        order = tuple(source.sample(agents, len(agents)))
        yield order, order[::-1]


def _gains(order: Sequence[str], value: Callable[[Coalition], float]) -> dict[str, float]:
    gains, team, before = {}, frozenset[str](), value(frozenset())
    for agent in order:
        team = team | {agent}
        after = value(team)
        gains[agent], before = after - before, after
    return gains


def _values(reward: float, agents: Sequence[str], known: Mapping[Coalition, float]) -> Callable[[Coalition], float]:
    """The value of any coalition; nobody gets nothing unless it is known better."""
    place = {agent: index for index, agent in enumerate(agents)}
    seen = {**known, frozenset(agents): reward}
    nobody = seen.get(frozenset(), 0.0)
    teams = [team for team in seen if team]
    rows = np.zeros((len(teams), len(agents)))
    for row, team in zip(rows, teams, strict=True):
        row[[place[agent] for agent in team]] = 1.0
    wanted = np.asarray([seen[team] - nobody for team in teams])
    # Of two agents that were never seen apart neither is better: the ridge draws towards equal worth, not towards none.
    level = float(wanted.sum() / rows.sum())
    moved = np.linalg.solve(
        rows.T @ rows + RIDGE * np.eye(len(agents)), rows.T @ (wanted - rows @ np.full(len(agents), level))
    )
    worth = {agent: level + float(moved[place[agent]]) for agent in agents}

    def value(team: Coalition) -> float:
        found = seen.get(team)
        return found if found is not None else nobody + math.fsum(worth[agent] for agent in team)

    return value
