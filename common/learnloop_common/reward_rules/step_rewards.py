"""Reward of each step of an episode under a RewardPolicy, for learning from steps.

Normalisation and bounds are left out: they put stored rewards of different agents on one scale, and a run learns from
one agent. Safety constraints hold: an episode that breaks one is not worth more than it allows.
"""

import math
from dataclasses import dataclass
from typing import Any

from learnloop_api.kinds.reward_policy import RewardPolicySpec
from learnloop_common.reward_rules.components import LIMIT, Episode, Worth, bounded, credits, evaluate, potentials_of


@dataclass(frozen=True, slots=True)
class Advance:
    """Reward of a step before the episode's end: `share` of the environment's reward for
    it, and `each` for having been taken."""

    share: float
    each: float


@dataclass(frozen=True, slots=True)
class Shares:
    """How an episode's task was shared with other agents.

    Attributes:
        to_others: of this episode's own worth, what other agents were credited with; None: it was not divided.
        from_others: what this episode earns of the tasks that it helped others with; None: it helped no other.
    """

    to_others: float | None = None
    from_others: float | None = None


ALONE = Shares()


def advance(spec: RewardPolicySpec) -> Advance:
    """Of the components that grow with each step: environment, base and time. All others are known at the end only."""
    share = each = 0.0
    for component in spec.components:
        match component.type:
            case "environment":
                share += component.weight / component.scale
            case "base":
                each += component.weight / component.scale
            case "time":
                each -= component.weight / component.scale
    return Advance(share, each)


def whole(spec: RewardPolicySpec, episode: Episode) -> float:
    """Reward of the episode without shaping: the weighted sum, but no more than a broken constraint allows.

    Raises:
        ValueError: a measurement the policy uses is not a finite number.
    """
    worth = evaluate(spec.model_copy(update={"shaping": None}), episode)
    return min([worth.raw, *limits(spec, worth)])


def limits(spec: RewardPolicySpec, worth: Worth) -> list[float]:
    """Upper bound of the reward of an episode with these broken constraints."""
    return [constraint.reward_at_most for constraint in spec.constraints if constraint.name in worth.broken]


def shared(spec: RewardPolicySpec, episode: Episode, shares: Shares) -> float:
    """`whole` less what others were credited with, and the part in others' tasks, within the episode's constraints.

    An episode that only helped has no worth of its own: what came of the task is its worth, and that was divided.

    Raises:
        ValueError: see `whole`.
    """
    worth = evaluate(spec.model_copy(update={"shaping": None}), episode)
    only_helped = shares.to_others is None and shares.from_others is not None
    own = 0.0 if only_helped else min([worth.raw, *limits(spec, worth)]) - (shares.to_others or 0.0)
    return bounded(min([own + (shares.from_others or 0.0), *limits(spec, worth)]), LIMIT)


def as_played(
    spec: RewardPolicySpec, episode: Episode, last_observation: Any = None, shares: Shares = ALONE
) -> list[float]:
    """Reward of each of the steps in `episode.log` before the episode's end.

    A step is given its `advance`, the last one besides what is missing to `shared`; shaping comes on top.

    Raises:
        ValueError: see `whole`.
    """
    if not episode.log:
        return []
    given = advance(spec)
    parts = [given.share * float(step.get("reward") or 0.0) + given.each for step in episode.log]
    parts[-1] = bounded(parts[-1] + shared(spec, episode, shares) - math.fsum(parts), LIMIT)
    return _shaped(spec, parts, episode, last_observation)


def divided(
    spec: RewardPolicySpec, episode: Episode, last_observation: Any = None, shares: Shares = ALONE
) -> list[float]:
    """`shared`, divided among the steps in `episode.log` as the policy's credit assignment says; shaping comes on top.

    Raises:
        ValueError: see `whole`.
    """
    return _shaped(spec, credits(spec.credit, shared(spec, episode, shares), episode.log), episode, last_observation)


def _shaped(spec: RewardPolicySpec, parts: list[float], episode: Episode, last_observation: Any) -> list[float]:
    """With discount × potential(next) - potential(now) added to each step (Ng, Harada & Russell, ICML 1999): 0 is the
    potential where the episode terminated, and the last step's term where the next observation is unknown."""
    rule = spec.shaping
    if rule is None or not parts:
        return parts
    items = [step.get("observation") for step in episode.log]
    potentials = potentials_of(rule, items)
    if episode.log[-1].get("terminated"):
        potentials.append(0.0)
    elif last_observation is not None:
        potentials.append(potentials_of(rule, [*items, last_observation])[-1])
    else:
        potentials.append(potentials[-1] / rule.discount)
    return [part + rule.discount * potentials[t + 1] - potentials[t] for t, part in enumerate(parts)]
