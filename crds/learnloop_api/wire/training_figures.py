"""What a learner and its process tell of themselves: one list of names for heartbeats, curves and Prometheus."""

import re
from collections.abc import Mapping

FIGURES: Mapping[str, str] = {
    "loss": "Loss of the newest update, where the learner has one that says it all.",
    "policy_loss": "Loss of the policy in the newest update.",
    "value_loss": "Loss of the value function in the newest update.",
    "value": "Mean value estimate in the newest update.",
    "entropy": "Mean entropy of the policy in the newest update, in nats.",
    "kl_divergence": "Mean KL divergence of the newest update's policy from the one that acted, in nats.",
    "gradient_norm": "Norm of the newest gradient before it was clipped.",
    "learning_rate": "Step size of the newest update.",
    "epsilon": "Share of actions that exploration draws at random.",
    "replay_transitions": "Transitions in the first rank's replay buffer.",
    "samplers": "Samplers that play for the learner now.",
    "staleness": "Versions of the policy since the one that took the newest steps learned from, on average.",
    "dropped_steps": "Steps so far that samplers sent and nobody learned from: an older policy took them.",
    "refused_fragments": "Messages of samplers so far that the learner refused.",
    "invalid_actions": "Actions so far that were not allowed: a safety shield replaced them.",
    "memory_bytes": "Resident memory of the first rank's process.",
    "gpu_memory_bytes": "Memory that the first rank holds on its GPU.",
}
"""Single figures: each is the curve `train/<name>` and the metric `learnloop_training_<name>`."""
RESOURCES: Mapping[str, str] = {
    "cpu_utilization": "cpu",
    "memory_utilization": "memory",
    "gpu_utilization": "gpu",
    "gpu_memory_utilization": "gpu_memory",
}
"""Shares from 0 to 1 of what the first rank may use: each is a series of `resource_utilization`."""
ACTION_SHARE = "action_share_"
"""With the action's number: its share among the newest discrete actions."""
MOST_ACTIONS = 32
LEARNED = ("samples_to_convergence", "convergence")
"""Of the whole curve of returns, as far as it goes."""
LONGEST_NAME = 32
NAME_PATTERN = (
    f"^({'|'.join((*FIGURES, *RESOURCES, *LEARNED))}|{ACTION_SHARE}({'|'.join(map(str, range(MOST_ACTIONS)))}))$"
)
"""What `known` accepts, in the words of JSON Schema."""


def known(name: str) -> bool:
    """Is this one of the figures that a heartbeat may carry?"""
    return re.fullmatch(NAME_PATTERN, name) is not None
