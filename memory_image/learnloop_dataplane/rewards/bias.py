"""Bias of rewards between groups: sums by group, the gaps between groups, and the finding that they make."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import orjson

from learnloop_api.kinds.reward_components import BiasCheck
from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_api.wire.reward import BiasFigures, GroupGap, GroupSwap
from learnloop_common.reward_rules.components import Episode, evaluate
from learnloop_dataplane.rewards.reward_hacking import Floats

Outcome = Literal["success", "failure", "unsaid"]
MOST_GROUPS = 1000
"""Of a key at a time. Where there are more, those that are too small to be compared make room: a thousand made-up names
must not hide the groups there are. Episodes of what finds no room are only counted."""
TOO_SMALL = 10
"""Episodes that no group is compared below: the least that `minimumEpisodes` may be."""
MOST_CHARACTERS = 64
EXAMPLES = 25
"""Episodes of a group whose ids are kept."""


class Moments:
    """Number, means and sums of squared deviations of vectors (B. P. Welford, Technometrics 4(3), 1962)."""

    __slots__ = ("count", "m2", "mean")

    def __init__(self, size: int) -> None:
        self.count, self.mean, self.m2 = 0, np.zeros(size), np.zeros(size)

    def add(self, values: Floats) -> None:
        """One more vector, shape (size,)."""
        self.count += 1
        delta = values - self.mean
        self.mean += delta / self.count
        self.m2 += delta * (values - self.mean)


class EpisodeGroup:
    """One value of a key: its episodes by their outcome, and the ids of the newest."""

    def __init__(self) -> None:
        self.by_outcome: dict[Outcome, Moments] = {}
        self.examples: list[str] = []

    @property
    def count(self) -> int:
        """Its episodes."""
        return sum(moments.count for moments in self.by_outcome.values())

    def at(self, outcome: Outcome) -> int:
        """Its episodes with this outcome."""
        found = self.by_outcome.get(outcome)
        return found.count if found else 0


class Tally:
    """Of one policy, by key and group. The first number of a vector is the reward before normalisation, no more than a
    broken constraint allows; the others are what each component adds to it."""

    def __init__(self, spec: RewardPolicySpec, keys: Sequence[str]) -> None:
        self.spec = spec
        self.groups: dict[str, dict[str, EpisodeGroup]] = {key: {} for key in keys}
        self.beyond: dict[str, int] = dict.fromkeys(keys, 0)
        self.forgotten: dict[str, int] = dict.fromkeys(keys, 0)
        self.episodes = 0
        self._weights = {component.name: component.weight for component in spec.components}
        self._caps = {constraint.name: constraint.reward_at_most for constraint in spec.constraints}

    @property
    def size(self) -> int:
        """Length of a vector."""
        return 1 + len(self._weights)

    def add(self, row: Mapping[str, Any], episode: Episode) -> None:
        """One episode, and the row with `labels`, `task_type` and `told` (the metadata of its result) it came from."""
        self.episodes += 1
        named = dict(group_names(row, self.groups))
        if not named:
            return
        values = np.array(self._values(episode))
        outcome: Outcome = "unsaid" if episode.success is None else "success" if episode.success else "failure"
        for key, name in named.items():
            known = self.groups[key]
            group = known.get(name)
            if group is None:
                if len(known) >= MOST_GROUPS and not self._make_room(key):
                    self.beyond[key] += 1
                    continue
                group = known[name] = EpisodeGroup()
            if outcome not in group.by_outcome:
                group.by_outcome[outcome] = Moments(self.size)
            group.by_outcome[outcome].add(values)
            if len(group.examples) < EXAMPLES:
                group.examples.append(row["trajectory_id"])

    def _make_room(self, key: str) -> bool:
        """Forget the smaller half of a key's groups, those too small to be compared; False where none is so small."""
        known = self.groups[key]
        smallest = sorted(known, key=lambda name: known[name].count)[: MOST_GROUPS // 2]
        small = [name for name in smallest if known[name].count < TOO_SMALL]
        for name in small:
            self.beyond[key] += known.pop(name).count
        self.forgotten[key] += len(small)
        return bool(small)

    def _values(self, episode: Episode) -> list[float]:
        worth = evaluate(self.spec, episode)
        reward = min([worth.raw, *(self._caps[name] for name in worth.broken)])
        return [reward, *(weight * worth.components[name] for name, weight in self._weights.items())]


def group_names(row: Mapping[str, Any], keys: Sequence[str] | Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each key with the group that the episode belongs to; keys that it says nothing of are left out."""
    labels = told = None
    for key in keys:
        if key == "taskType":
            value: Any = row["task_type"]
        elif key.startswith("result."):
            told = orjson.loads(row["told"] or "{}") if told is None else told
            value = told.get(key.removeprefix("result.metadata.")) if isinstance(told, dict) else None
        else:
            labels = orjson.loads(row["labels"] or "{}") if labels is None else labels
            value = labels.get(key.removeprefix("metadata."))
        if isinstance(value, bool):
            value = "true" if value else "false"
        if isinstance(value, str | int | float) and value != "":
            yield key, "".join(c if c.isprintable() else " " for c in str(value)[:MOST_CHARACTERS])


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


SHOWN = 20
_REASONS = {"reward": "RewardGap", "component": "ComponentGap", "success": "SuccessGap"}
_OUTCOMES = {"success": "successes", "failure": "failures", "unsaid": "episodes without a verdict", "any": "all"}


def bias_figures(tally: Tally, rule: BiasCheck, gaps: Gaps, swapped: GroupSwap | None) -> BiasFigures:
    """A gap of rewards is graver than a reward that moves, and that than a gap of a component or of success."""
    too_large = {gap.measure: gap for gap in reversed(gaps.gaps) if gap.low > limit_of(rule, gap)}
    looked = bool(gaps.gaps) or bool(swapped and swapped.changed)
    suspected: bool | None = bool(too_large) or bool(swapped and swapped.moved)
    if "reward" in too_large:
        reason, sentence = "RewardGap", _gap_sentence(rule, too_large["reward"])
    elif swapped and swapped.moved:
        reason, sentence = "RewardMoves", _move_sentence(rule, swapped)
    elif too_large:
        gap = too_large.get("component") or too_large["success"]
        reason, sentence = _REASONS[gap.measure], _gap_sentence(rule, gap)
    elif not looked:
        suspected, reason = None, "NotEnoughEpisodes"
        sentence = f"no two groups have {rule.minimum_episodes} episodes of one outcome: too few to compare"
    else:
        reason, sentence = "NothingFound", _nothing(rule, gaps, swapped)
    return BiasFigures.model_validate(
        {
            "suspected": suspected,
            "reason": reason,
            "sentence": sentence[:1024],
            "episodes": tally.episodes,
            "groups": {key: len(names) for key, names in gaps.compared.items()},
            "groups_left_out": gaps.left_out,
            "comparisons": len(gaps.gaps),
            "gaps": gaps.gaps[:SHOWN],
            "swapped": swapped,
        }
    )


def _gap_sentence(rule: BiasCheck, gap: GroupGap) -> str:
    more, less = (name[:40] for name in gap.groups)
    figures = f"between {gap.low:.3g} and {gap.high:.3g} at {rule.confidence:.4g} confidence"
    counts = f"over {gap.episodes[0]} and {gap.episodes[1]} episodes"
    if gap.measure == "success":
        return f"{gap.key}: {more} succeeds more often than {less}, by {gap.gap:.1%} ({figures}) {counts}"
    what = "earns" if gap.measure == "reward" else f"gets from component {gap.component}"
    sentence = f"{gap.key}: {more} {what} {gap.gap:.3g} more than {less} for the same outcome"
    return f"{sentence}: {figures}, {counts}, {_OUTCOMES[gap.outcome]}; allowed is {rule.max_gap:g}"


def _move_sentence(rule: BiasCheck, swapped: GroupSwap) -> str:
    found = f"the group swapped, {swapped.moved} of {swapped.changed} rewards of recorded episodes moved"
    where = f"look at trajectories {', '.join(swapped.worst)}"
    return f"{found} by up to {swapped.largest:.3g}; allowed is {rule.max_move:g}; {where}"


def _nothing(rule: BiasCheck, gaps: Gaps, swapped: GroupSwap | None) -> str:
    """Without figures of the moment: it is a message that stays while the finding does."""
    parts = []
    if gaps.gaps:
        parts.append(f"no gap between groups is surely above {rule.max_gap:g} for the same outcome")
    if swapped and swapped.changed:
        parts.append("no reward moved when the group was swapped")
    elif swapped:
        parts.append("nothing that the policy reads names a group, so that swapping it said nothing")
    return "; ".join(parts)
