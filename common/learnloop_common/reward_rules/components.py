"""Components from the logged steps of an episode: smoothness of the actions, potentials, division of the reward."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from learnloop_api.kinds.reward_policy import (
    LARGEST_REWARD,
    CreditAssignment,
    PotentialShaping,
    RewardComponent,
    RewardPolicySpec,
)

Log = Sequence[Mapping[str, Any]]


def mean_change(log: Log) -> float | None:
    """The mean of `change` over consecutive actions; None with fewer than two actions."""
    if len(log) < 2:
        return None
    changes = [change(before.get("action"), after.get("action")) for before, after in pairwise(log)]
    return sum(changes) / len(changes)


def potential_terms(rule: PotentialShaping, log: Log) -> list[float]:
    """For each step, discounted to the start: discount^t × (discount × potential(t+1) - potential(t)).

    The potential of the end is 0 where the episode terminated, as it must be to change no optimal policy (Grześ, AAMAS
    2017). Where it was cut off, the observation after the last step is not known, and that step's term is 0. An
    observation without that number has potential 0.
    """
    potentials = potentials_of(rule, [step.get("observation") for step in log])
    if log and log[-1].get("terminated"):
        potentials.append(0.0)
    terms = [
        rule.discount**index * (rule.discount * after - before)
        for index, (before, after) in enumerate(pairwise(potentials))
    ]
    return terms + [0.0] * (len(log) - len(terms))


def potential_sum(rule: PotentialShaping, log: Log) -> float:
    """The sum of `potential_terms`, which telescopes: only the first and the last observation matter."""
    if not log:
        return 0.0
    last = len(log) - 1
    result = potentials_of(rule, [step.get("observation") for step in log])
    end = 0.0 if log[-1].get("terminated") else rule.discount**last * result[-1]
    return end - result[0]


def credits(rule: CreditAssignment, reward: float, log: Log) -> list[float]:
    """The part of each step in the episode's reward; the parts add up to it.

    Args:
        rule: how to divide.
        reward: of the whole episode.
        log: its T steps; with none the answer is empty.
    """
    if not log:
        return []
    count = len(log)
    match rule.method:
        case "final":
            shares = [0.0] * (count - 1) + [1.0]
        case "discounted":
            shares = [rule.discount ** (count - 1 - index) for index in range(count)]
        case "environment":
            shares = [abs(float(step.get("reward") or 0.0)) for step in log]
        case _:
            shares = [1.0] * count
    largest = max(shares)
    if largest <= 0:
        shares, largest = [1.0] * count, 1.0
    # Divided by the largest first: a sum of huge rewards must not overflow.
    shares = [share / largest for share in shares]
    total = sum(shares)
    return [reward * (share / total) for share in shares]


def division(rule: CreditAssignment, reward: float, steps: int, log: Log) -> dict[str, Any]:
    """Summary of `credits` without the steps: how many, which got the most, and how much.

    Args:
        steps: length of the episode.
        log: its steps; only the method environment reads them, and without them it divides as uniform does.
    """
    parts = credits(rule, reward, log if rule.method == "environment" and log else [{}] * steps)
    fields: dict[str, Any] = {"method": rule.method, "steps": steps}
    if not parts:
        return fields
    most = max(range(len(parts)), key=lambda index: abs(parts[index]))
    return fields | {"last": parts[-1], "largest": parts[most], "largest_step": most}


def potentials_of(rule: PotentialShaping, observations: Sequence[Any]) -> list[float]:
    """Of consecutive observations. A milestone that was mentioned once stays reached: what was said is part of the
    state that an agent with a memory of its conversation is in."""
    if rule.milestones is None:
        return [potential(rule, observation) for observation in observations]
    phrases = [phrase.casefold() for phrase in rule.milestones]
    reached: set[int] = set()
    items = []
    for observation in observations:
        if len(reached) < len(phrases):
            message = " ".join(_texts(observation)).casefold()
            reached |= {index for index, phrase in enumerate(phrases) if phrase in message}
        items.append(rule.weight * len(reached) / len(phrases))
    return items


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, of any depth, but no names of fields."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            waiting.extend(item[::-1])


def potential(rule: PotentialShaping, observation: Any) -> float:
    """Of an observation of numbers; 0 where it has no such number."""
    if rule.observation is None or not isinstance(observation, list) or rule.observation >= len(observation):
        return 0.0
    return min(LARGEST_REWARD, max(-LARGEST_REWARD, rule.weight * float(observation[rule.observation])))


def change(before: Any, after: Any) -> float:
    """Of two actions: of vectors of one length their mean absolute difference; else 1 unless they are equal."""
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after) > 0:
        return float(sum(abs(x - y) for x, y in zip(before, after, strict=True)) / len(before))
    return 0.0 if before == after else 1.0


# Keeps sums of squares far from overflow whatever an environment reports.
LIMIT = LARGEST_REWARD
# Components that read one outcome value: its name, the sign, and the range the result is held to.
_READINGS = {
    "quality": ("quality", 1.0, 0.0, 1.0),
    "feedback": ("feedback", 1.0, -1.0, 1.0),
    "collision": ("collisions", -1.0, -LIMIT, 0.0),
    "exploration": ("discoveries", 1.0, -LIMIT, LIMIT),
    "cooperation": ("cooperation", 1.0, -LIMIT, LIMIT),
    "coordination": ("", 1.0, 0.0, 1.0),
    "outcome": ("", 1.0, -LIMIT, LIMIT),
}


@dataclass(frozen=True)
class Episode:
    """Input of the components.

    Attributes:
        episode_return: undiscounted sum of the environment's rewards.
        success: did the task succeed; None: not reported.
        steps: length of the episode.
        values: the named outcome values.
        log: the steps themselves (wire.Step as JSON objects); only read by what `needs_log` names.
        scores: what evaluators made of the output, by the component's name.
        change: mean change between consecutive actions, for who has counted it along; None: read it from the log.
    """

    episode_return: float
    success: bool | None
    steps: int
    values: Mapping[str, float] = field(default_factory=dict)
    log: Sequence[Mapping[str, Any]] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    change: float | None = None


@dataclass(frozen=True)
class Worth:
    """Rewards of one episode before normalisation.

    Attributes:
        components: value of each component by name; 0 where its measurement is missing.
        raw: their weighted sum plus the shaping.
        coverage: share of the weights whose measurement was there, 0 to 1.
        broken: names of the safety constraints the episode broke.
    """

    components: dict[str, float]
    raw: float
    coverage: float
    broken: tuple[str, ...]


def needs_log(spec: RewardPolicySpec) -> bool:
    """Whether this policy reads the steps; loading them is most of the work of a reward."""
    return spec.shaping is not None or any(component.type == "smoothness" for component in spec.components)


def component_value(component: RewardComponent, episode: Episode) -> float | None:
    """Value of one component before weighting, finite and within ±1e9; None when its measurement is missing.

    Raises:
        ValueError: the measurement is not a finite number.
    """
    value = _measured(component, episode)
    return None if value is None else bounded(value, LIMIT)


def evaluate(spec: RewardPolicySpec, episode: Episode) -> Worth:
    """The components, their weighted sum, and the constraints that were broken.

    Raises:
        ValueError: a measurement the policy uses is not a finite number.
    """
    fields = {component.name: component_value(component, episode) for component in spec.components}
    values = {name: value or 0.0 for name, value in fields.items()}
    present = math.fsum(component.weight for component in spec.components if fields[component.name] is not None)
    total = math.fsum(component.weight * values[component.name] for component in spec.components)
    if spec.missing == "reweigh" and present > 0:
        total /= present
    if spec.shaping is not None:
        total += potential_sum(spec.shaping, episode.log)
    broken = tuple(
        constraint.name
        for constraint in spec.constraints
        if (value := _outcome(episode, constraint.key)) is not None and value > constraint.maximum
    )
    return Worth(values, bounded(total, LIMIT), min(1.0, present), broken)


def bounded(value: float, limit: float) -> float:
    """The value within ±limit."""
    return min(limit, max(-limit, value))


def _measured(component: RewardComponent, episode: Episode) -> float | None:
    match component.type:
        case "environment":
            return finite("episode_return", episode.episode_return) / component.scale
        case "success":
            return None if episode.success is None else float(episode.success)
        case "efficiency":
            return max(0.0, 1.0 - episode.steps / component.scale)
        case "base":
            return episode.steps / component.scale
        case "time":
            return -episode.steps / component.scale
        case "smoothness":
            change = mean_change(episode.log) if episode.change is None else episode.change
            return None if change is None else max(0.0, 1.0 - change / component.scale)
        case "coordination" if component.key is None:
            attempts, joint = _outcome(episode, "joint_attempts"), _outcome(episode, "joint_successes")
            return min(1.0, max(0.0, joint / attempts)) if attempts and attempts > 0 and joint is not None else None
        case "difference":
            # The team's result minus what it would have been without this agent (Wolpert & Tumer, 2002).
            team, without = _outcome(episode, "global"), _outcome(episode, "counterfactual")
            return (team - without) / component.scale if team is not None and without is not None else None
        case "evaluator":
            score = episode.scores.get(component.name)
            return None if score is None else finite(f"scores.{component.name}", score) / component.scale
        case _:
            name, sign, low, high = _READINGS[component.type]
            value = _outcome(episode, component.key or name)
            return None if value is None else min(high, max(low, sign * value / component.scale))


def _outcome(episode: Episode, key: str) -> float | None:
    value = episode.values.get(key)
    # A value stored under a secret's name was redacted and is text now: it counts as missing.
    return finite(f"values.{key}", value) if isinstance(value, int | float) else None


def finite(name: str, value: float) -> float:
    """The value itself.

    Raises:
        ValueError: it is NaN or infinite.
    """
    if not math.isfinite(value):
        raise ValueError(f"{name}: {value} is not a finite number; send a finite one, or leave the measurement out")
    return value


OF_PLAY = ("environment", "success", "efficiency", "base", "time", "smoothness")
"""Types that every simulator's episodes show; the others need an outcome value, a person or an evaluator."""


def counting(spec: RewardPolicySpec) -> list[RewardComponent]:
    """The components with a weight."""
    return [component for component in spec.components if component.weight > 0]


def without_values(spec: RewardPolicySpec, episodes: Iterable[Episode]) -> list[str]:
    """Names of the components with a weight that none of the episodes has a value for, in the policy's order.

    Raises:
        ValueError: a measurement the policy uses is not a finite number.
    """
    missing = counting(spec)
    for episode in episodes:
        missing = [component for component in missing if component_value(component, episode) is None]
        if not missing:
            break
    return [component.name for component in missing]


def outcome_readers(spec: RewardPolicySpec) -> dict[str, str]:
    """Outcome values that the policy names itself, each with who reads it."""
    readers = {one.key: f"component {one.name}" for one in counting(spec) if one.key}
    return readers | {one.key: f"constraint {one.name}" for one in spec.constraints}


def read_values(spec: RewardPolicySpec) -> list[str]:
    """All outcome values that may change a reward, sorted."""
    own: dict[str, tuple[str, ...]] = {kind: (name,) for kind, (name, *_) in _READINGS.items() if name}
    own["coordination"], own["difference"] = ("joint_attempts", "joint_successes"), ("global", "counterfactual")
    types = [one.type for one in counting(spec) if one.key is None]
    return sorted({*outcome_readers(spec), *(name for kind in types for name in own.get(kind, ()))})


def described(spec: RewardPolicySpec, names: Iterable[str]) -> str:
    """Components as a person looks for them, e.g. `shipped (outcome parcels)`."""
    wanted = set(names)
    items = [one for one in spec.components if one.name in wanted]
    return ", ".join(f"{one.name} ({one.type}{f' {one.key}' if one.key else ''})" for one in items)
