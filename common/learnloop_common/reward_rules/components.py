"""What an episode is worth under a RewardPolicy: pure functions, no clock, no database."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from learnloop_api.kinds.reward_components import LARGEST_REWARD
from learnloop_api.kinds.reward_policy import RewardComponent, RewardPolicySpec
from learnloop_common.reward_rules.step_terms import mean_change, potential_sum

# Keeps sums of squares far from overflow whatever an environment reports.
LIMIT = LARGEST_REWARD
# Components that read one outcome value: its name, the sign, and the range the result is held to.
_READINGS = {
    "quality": ("quality", 1.0, 0.0, 1.0),
    "feedback": ("feedback", 1.0, -1.0, 1.0),
    "collision": ("collisions", -1.0, -LIMIT, 0.0),
    "exploration": ("discoveries", 1.0, -LIMIT, LIMIT),
    "cooperation": ("cooperation", 1.0, -LIMIT, LIMIT),
}


@dataclass(frozen=True)
class Episode:
    """What the components look at.

    Attributes:
        episode_return: undiscounted sum of the environment's rewards.
        success: did the task succeed; None when nobody said.
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
    """What a policy makes of one episode before normalisation.

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
    found = {component.name: component_value(component, episode) for component in spec.components}
    values = {name: value or 0.0 for name, value in found.items()}
    present = math.fsum(component.weight for component in spec.components if found[component.name] is not None)
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
        case "coordination":
            attempts, joint = _outcome(episode, "joint_attempts"), _outcome(episode, "joint_successes")
            return min(1.0, max(0.0, joint / attempts)) if attempts and attempts > 0 and joint is not None else None
        case "difference":
            # The team's result minus what it would have been without this agent (Wolpert & Tumer, 2002).
            team, without = _outcome(episode, "global"), _outcome(episode, "counterfactual")
            return (team - without) / component.scale if team is not None and without is not None else None
        case "evaluator":
            score = episode.scores.get(component.name)
            return None if score is None else finite(f"scores.{component.name}", score) / component.scale
        case "outcome":
            value = _outcome(episode, component.key or "")
            return None if value is None else value / component.scale
        case _:
            name, sign, low, high = _READINGS[component.type]
            value = _outcome(episode, name)
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
