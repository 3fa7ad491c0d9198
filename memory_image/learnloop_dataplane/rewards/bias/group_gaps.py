"""Gaps between groups at equal outcomes, and how sure they are. Pure.

Episodes are compared with episodes of the same outcome: a group that fails more often rightly earns less, and that is
no bias of the reward. Means by Welch's interval (Biometrika 34, 1947), rates by Newcombe's (Statistics in Medicine 17,
1998, method 10); the error is shared by all comparisons (Bonferroni), so that many groups raise no false alarm.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

from learnloop_api.kinds.reward_components import BiasCheck
from learnloop_api.wire.reward import GroupGap
from learnloop_dataplane.rewards.bias.group_moments import EpisodeGroup, Outcome, Tally

COMPARED = 20
"""Largest groups of a key."""
OUTCOMES: tuple[Outcome, ...] = ("success", "failure", "unsaid")


@dataclass(frozen=True)
class Gaps:
    """What a tally shows.

    Attributes:
        gaps: one for each comparison, the surest first: by how far the lower end lies above its limit.
        compared: groups by key that were compared with another one.
        left_out: groups that were not.
    """

    gaps: tuple[GroupGap, ...]
    compared: dict[str, tuple[str, ...]]
    left_out: int


def limit_of(rule: BiasCheck, gap: GroupGap) -> float:
    """How large this gap may be."""
    if gap.measure == "success":
        return math.inf if rule.max_success_gap is None else rule.max_success_gap
    return rule.max_gap


def compare(tally: Tally, rule: BiasCheck) -> Gaps:
    """All groups of each key with one another."""
    pairs: list[tuple[str, str, EpisodeGroup, str, EpisodeGroup]] = []
    compared: dict[str, tuple[str, ...]] = {}
    left_out = 0
    for key, groups in tally.groups.items():
        largest = sorted(groups, key=lambda name: (-groups[name].count, name))[:COMPARED]
        enough = [name for name in largest if any(groups[name].at(o) >= rule.minimum_episodes for o in OUTCOMES)]
        left_out += len(groups) - len(enough) + tally.forgotten[key]
        compared[key] = tuple(enough)
        pairs.extend((key, one, groups[one], other, groups[other]) for one, other in combinations(enough, 2))
    counts = [
        sum(one.at(o) >= rule.minimum_episodes <= other.at(o) for o in OUTCOMES) * tally.size
        + _has_rates(one, other, rule)
        for _, _, one, _, other in pairs
    ]
    comparisons = sum(counts)
    if not comparisons:
        return Gaps((), compared, left_out)
    error = (1.0 - rule.confidence) / comparisons
    names = [component.name for component in tally.spec.components]
    found = [gap for pair in pairs for gap in _of_pair(pair, rule, names, error)]
    found.sort(key=lambda gap: (limit_of(rule, gap) - gap.low, -gap.gap, gap.key, gap.groups, gap.outcome))
    return Gaps(tuple(found), compared, left_out)


def _has_rates(one: EpisodeGroup, other: EpisodeGroup, rule: BiasCheck) -> bool:
    return min(one.at("success") + one.at("failure"), other.at("success") + other.at("failure")) >= max(
        1, rule.minimum_episodes
    )


def _of_pair(
    pair: tuple[str, str, EpisodeGroup, str, EpisodeGroup], rule: BiasCheck, names: Sequence[str], error: float
) -> Iterator[GroupGap]:
    key, name, one, other_name, other = pair
    z = NormalDist().inv_cdf(1.0 - error / 2)
    for outcome in OUTCOMES:
        if min(one.at(outcome), other.at(outcome)) < rule.minimum_episodes:
            continue
        first, second = one.by_outcome[outcome], other.by_outcome[outcome]
        sizes = first.count, second.count
        for place, component in enumerate([None, *names]):
            means = float(first.mean[place]), float(second.mean[place])
            spreads = float(first.m2[place]) / (sizes[0] - 1), float(second.m2[place]) / (sizes[1] - 1)
            half = _half_width(spreads, sizes, z)
            measure = "reward" if component is None else "component"
            yield _gap(key, (name, other_name), outcome, measure, component, means, half, sizes)
    if _has_rates(one, other, rule):
        yield _success(key, (name, other_name), one, other, z)


def _half_width(spreads: tuple[float, float], sizes: tuple[int, int], z: float) -> float:
    """Half of Welch's interval."""
    parts = spreads[0] / sizes[0], spreads[1] / sizes[1]
    variance = parts[0] + parts[1]
    if variance <= 0:
        return 0.0
    # Shares first: squares of tiny variances would be 0.
    shares = parts[0] / variance, parts[1] / variance
    freedom = 1.0 / (shares[0] ** 2 / (sizes[0] - 1) + shares[1] ** 2 / (sizes[1] - 1))
    return student(z, freedom) * math.sqrt(variance)


def student(z: float, freedom: float) -> float:
    """The quantile of Student's t where the normal distribution has `z` (Abramowitz & Stegun, 1964, 26.7.5); for
    `freedom` from 9 on."""
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160,
    )
    return z + math.fsum(term / freedom**power for power, term in enumerate(terms, 1))


def _gap(
    key: str,
    names: tuple[str, str],
    outcome: Outcome,
    measure: str,
    component: str | None,
    means: tuple[float, float],
    half: float,
    sizes: tuple[int, int],
) -> GroupGap:
    gap = means[0] - means[1]
    if gap < 0:
        names, sizes, gap = names[::-1], sizes[::-1], -gap
    low, high = gap - half, gap + half
    return GroupGap.model_validate(
        {"key": key, "groups": names, "outcome": outcome, "measure": measure, "component": component}
        | {"gap": gap, "low": low, "high": high, "episodes": sizes}
    )


def _success(key: str, names: tuple[str, str], one: EpisodeGroup, other: EpisodeGroup, z: float) -> GroupGap:
    wins = one.at("success"), other.at("success")
    sizes = wins[0] + one.at("failure"), wins[1] + other.at("failure")
    if wins[0] * sizes[1] < wins[1] * sizes[0]:
        names, wins, sizes = names[::-1], wins[::-1], sizes[::-1]
    rates = wins[0] / sizes[0], wins[1] / sizes[1]
    (low, high), (other_low, other_high) = (wilson(w, n, z) for w, n in zip(wins, sizes, strict=True))
    gap = rates[0] - rates[1]
    ends = (
        gap - math.hypot(rates[0] - low, other_high - rates[1]),
        gap + math.hypot(high - rates[0], rates[1] - other_low),
    )
    return GroupGap(
        key=key, groups=names, outcome="any", measure="success", gap=gap, low=ends[0], high=ends[1], episodes=sizes
    )


def wilson(wins: int, count: int, z: float) -> tuple[float, float]:
    """The interval of a rate (Wilson, JASA 22, 1927)."""
    rate, square = wins / count, z * z / count
    middle, spread = rate + square / 2, z * math.sqrt(rate * (1 - rate) / count + square / (4 * count))
    return max(0.0, (middle - spread) / (1 + square)), min(1.0, (middle + spread) / (1 + square))
