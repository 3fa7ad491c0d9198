"""What a reward says of the policy that gave it: evaluators, weights, normalisation and its parameters."""

from typing import Any

from learnloop_api.kinds.reward_policy import RewardPolicySpec


def policy_terms(spec: RewardPolicySpec) -> dict[str, Any]:
    """As the event agent.rl.reward.v1 has them."""
    rule = spec.normalisation
    return {
        "weights": {component.name: component.weight for component in spec.components},
        "evaluators": {
            component.name: component.evaluator.type for component in spec.components if component.evaluator is not None
        },
        "normalisation": {"method": rule.method, "clip": rule.clip},
    }
