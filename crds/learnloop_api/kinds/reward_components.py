"""What a RewardPolicy does beside its weighted sum: normalisation, bounds, shaping, credit, constraints."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from learnloop_api.kinds.base import ObjectName, Resource
from learnloop_api.kinds.cel_rules import Rule

OutcomeKey = Annotated[str, Field(min_length=1, max_length=64)]
LARGEST_REWARD = 1e9


class Normalisation(Resource):
    """Puts rewards of different tasks on one scale."""

    method: Literal["none", "zscore", "minmax", "rank"] = Field(
        default="zscore",
        description="Against the agent's own history so far. zscore: (r - mean) / standard deviation; minmax: least "
        "0, largest 1; rank: share of the newest 500 rewards that are lower, ties count half; none: r as it is.",
    )
    clip: float = Field(default=10.0, gt=0, le=1000, description="Normalised rewards stay within ±clip.")


class Bounds(Resource):
    """Limits of the stored reward, after normalisation."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.minimum < self.maximum", "minimum must be below maximum: correct the bounds", ".minimum"),
    )

    minimum: float = Field(default=-1.0, ge=-LARGEST_REWARD, le=LARGEST_REWARD, description="No reward is lower.")
    maximum: float = Field(default=1.0, ge=-LARGEST_REWARD, le=LARGEST_REWARD, description="No reward is higher.")

    @model_validator(mode="after")
    def _in_order(self) -> "Bounds":
        if self.minimum >= self.maximum:
            raise ValueError(f"minimum: {self.minimum:g} is not below maximum {self.maximum:g}; correct the bounds")
        return self


class PotentialShaping(Resource):
    """Potential-based shaping (Ng, Harada & Russell, ICML 1999) with a number of the observation as potential, or with
    the milestones that messages have mentioned so far.

    It adds the discounted sum of discount × potential(next) - potential(now) over the observations, which depends on
    the first and the last of them only: what lies between cannot be gamed.
    """

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.observation) != has(self.milestones)",
            "set either observation, for numbers, or milestones, for messages",
            ".observation",
        ),
    )

    observation: int | None = Field(
        default=None,
        ge=0,
        le=65_535,
        description="Which number of the observation is the potential, counted from 0.",
    )
    milestones: list[Annotated[str, Field(min_length=1, max_length=256)]] | None = Field(
        default=None,
        min_length=1,
        max_length=32,
        description="Phrases, e.g. `order found`. The potential is the share of them that texts of the observations "
        "have mentioned so far, whatever their case: a step that reaches one is rewarded.",
    )
    weight: float = Field(
        ge=-1000, le=1000, description="Multiplies the number; negative where less is better, e.g. a distance."
    )
    discount: float = Field(default=0.99, gt=0, le=1, description="Discount of the training that uses the rewards.")

    @model_validator(mode="after")
    def _one_potential(self) -> "PotentialShaping":
        if (self.observation is None) == (self.milestones is None):
            raise ValueError("observation: set either observation, for numbers, or milestones, for messages")
        return self


class CreditAssignment(Resource):
    """How an episode's reward is divided among its steps. The parts always add up to the reward."""

    method: Literal["final", "uniform", "discounted", "environment"] = Field(
        default="final",
        description="final: all to the last step. uniform: the same to each. discounted: to a step `discount` times "
        "what the next one gets. environment: in proportion to the size of the environment's own "
        "rewards, uniform where it gave none.",
    )
    discount: float = Field(default=0.99, gt=0, le=1, description="Used by method discounted.")


class TeamCredit(Resource):
    """How the reward of a task is divided among the agents that took part. The parts always add up to the reward."""

    method: Literal["equal", "difference", "shapley"] = Field(
        default="equal",
        description="equal: the same to each. difference: to each what the team got with it and not without it, and "
        "an equal share of what is over or missing. shapley: to each what it adds, on average over the orders in which "
        "the agents might have come. Where nothing is known of smaller teams: equal.",
    )
    samples: int = Field(
        default=1000,
        ge=10,
        le=20_000,
        description="Used by shapley: orders that are tried. Where the agents have no more orders, all are.",
    )
    history: bool = Field(
        default=True,
        description="What smaller teams got in the newest 1,000 tasks of the same type counts, beside what the result "
        "says of them.",
    )


class SafetyConstraint(Resource):
    """A limit on an outcome value. An episode that breaks it is never worth more than `rewardAtMost`."""

    name: ObjectName = Field(description="Unique within the policy; rewards name the constraints that were broken.")
    key: OutcomeKey = Field(description="The outcome value, e.g. collisions; where it is missing nothing is broken.")
    maximum: float = Field(
        default=0.0, ge=-LARGEST_REWARD, le=LARGEST_REWARD, description="Broken by a value above this."
    )
    reward_at_most: float = Field(
        default=-1.0,
        ge=-LARGEST_REWARD,
        le=LARGEST_REWARD,
        description="Upper limit of the reward of an episode that broke it, whatever else it achieved.",
    )
