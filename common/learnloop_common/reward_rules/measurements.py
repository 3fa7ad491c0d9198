"""What a RewardPolicy finds to measure: where all find nothing, every episode is worth 0."""

from collections.abc import Iterable

from learnloop_api.kinds.reward_policy import RewardComponent, RewardPolicySpec
from learnloop_common.reward_rules.components import Episode, component_value

OF_PLAY = ("environment", "success", "efficiency", "base", "time", "smoothness")
"""Types that a simulator's episodes show; the others need an outcome, a person or an evaluator."""


def counting(spec: RewardPolicySpec) -> list[RewardComponent]:
    """The components with a weight."""
    return [component for component in spec.components if component.weight > 0]


def never_found(spec: RewardPolicySpec, episodes: Iterable[Episode]) -> list[str]:
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


def asked_values(spec: RewardPolicySpec) -> dict[str, str]:
    """Outcome values that the policy names itself, each with who reads it."""
    readers = {one.key: f"component {one.name}" for one in counting(spec) if one.type == "outcome" and one.key}
    return readers | {one.key: f"constraint {one.name}" for one in spec.constraints}


def described(spec: RewardPolicySpec, names: Iterable[str]) -> str:
    """Components as a person looks for them, e.g. `shipped (outcome parcels)`."""
    wanted = set(names)
    told = [one for one in spec.components if one.name in wanted]
    return ", ".join(f"{one.name} ({one.type}{f' {one.key}' if one.key else ''})" for one in told)
