"""What an episode is worth under a RewardPolicy: pure functions, no clock, no database."""

import math
from dataclasses import dataclass, field

from learnloop_api.kinds.reward_policy import RewardComponent, RewardPolicySpec

# Keeps sums of squares far from overflow whatever an environment reports.
LIMIT = 1e9


@dataclass(frozen=True)
class Episode:
    """What the components look at.

    Attributes:
        episode_return: undiscounted sum of the environment's rewards.
        success: did the task succeed; None counts as no.
        steps: length of the episode.
        values: the named outcome values.
    """

    episode_return: float
    success: bool | None
    steps: int
    values: dict[str, float] = field(default_factory=dict)


def component_value(component: RewardComponent, episode: Episode) -> float:
    """Value of one component before weighting, finite and within ±1e9; a missing outcome value counts as 0."""
    match component.type:
        case "environment":
            value = episode.episode_return / component.scale
        case "success":
            value = 1.0 if episode.success else 0.0
        case "efficiency":
            value = max(0.0, 1.0 - episode.steps / component.scale)
        case "outcome":
            value = episode.values.get(component.key or "", 0.0) / component.scale
    return bounded(value, LIMIT)


def raw_reward(spec: RewardPolicySpec, episode: Episode) -> tuple[dict[str, float], float]:
    """The value of each component by name, and their weighted sum."""
    values = {component.name: component_value(component, episode) for component in spec.components}
    total = math.fsum(component.weight * values[component.name] for component in spec.components)
    return values, bounded(total, LIMIT)


def bounded(value: float, limit: float) -> float:
    """The value within ±limit; NaN becomes 0."""
    return 0.0 if math.isnan(value) else min(limit, max(-limit, value))
