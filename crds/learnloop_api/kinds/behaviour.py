"""How a policy acts: part of the artifact, and the same wherever the policy acts."""

from typing import ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import Resource, Rule


class Behaviour(Resource):
    """How actions follow from what the policy's network says."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.epsilon) == (self.kind == 'epsilon-greedy')",
            "epsilon goes with kind: epsilon-greedy, which needs it: set both, or remove epsilon",
            ".epsilon",
        ),
        Rule(
            "!has(self.temperature) || self.kind == 'sampled'",
            "temperature goes with kind: sampled: remove it, or change kind",
            ".temperature",
        ),
    )

    kind: Literal["greedy", "epsilon-greedy", "sampled"] = Field(
        description="greedy: the best action; epsilon-greedy: mostly, for discrete actions; sampled: drawn from the "
        "policy's distribution, choices by softmax, numbers by the deviation that was learned (ppo, sac, "
        "iql-offline)."
    )
    epsilon: float | None = Field(
        default=None, gt=0, le=1, description="epsilon-greedy: in this share of steps any action, each as likely."
    )
    temperature: float | None = Field(
        default=None,
        ge=0.001,
        le=1000,
        description="sampled: logits are divided by it, deviations multiplied; left out, 1.",
    )


GREEDY = Behaviour(kind="greedy")
SAMPLED = Behaviour(kind="sampled")


def values_actions(algorithm: str) -> bool:
    """Does this algorithm's network give values of actions? False for a name that is unknown here."""
    # A policy server whose file says how it acts never asks, and starts sooner without the models of all algorithms.
    from learnloop_api.kinds.training.algorithms import ALGORITHMS

    recipe = ALGORITHMS.get(algorithm)
    return recipe is not None and recipe.values_actions


def usual(algorithm: str, *, continuous: bool) -> Behaviour:
    """Default behaviour of a new policy, and of a policy file without one.

    Policies with choices that were trained to draw (ppo, bc, iql-offline, and files of unknown origin with
    logits) draw; everything else is greedy.
    """
    return GREEDY if continuous or values_actions(algorithm) else SAMPLED
