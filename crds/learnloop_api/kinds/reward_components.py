"""Settings of a RewardPolicy beside its components: normalisation, bounds, shaping, credit, constraints, bias."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from learnloop_api.kinds.base import ObjectName, Resource, Rule, explained

OutcomeKey = Annotated[str, Field(min_length=1, max_length=64)]
LARGEST_REWARD = 1e9


class Normalisation(Resource):
    """Puts rewards of different tasks on one scale."""

    method: Literal["none", "zscore", "minmax"] = Field(
        default="zscore",
        description="Against the agent's own history so far. zscore: (r - mean) / standard deviation; minmax: least "
        "0, largest 1; none: r as it is.",
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

    method: Literal["equal", "difference"] = Field(
        default="equal",
        description="equal: the same to each. difference: to each the reward less what the others would have got "
        "without it, as the result says, and an equal share of the rest. Where the result says nothing: equal.",
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


GROUP_KEY = r"^(taskType|(result\.)?metadata\.[A-Za-z0-9_./-]{1,64})$"
PERSON = "metadata.user_id"
"""The label that names a person: people are no groups."""

GroupKey = Annotated[
    str,
    Field(
        min_length=1,
        max_length=80,
        pattern=GROUP_KEY,
        json_schema_extra=dict(
            explained("must be taskType, metadata.NAME (a label of the trajectory) or result.metadata.NAME")
        ),
    ),
]


class BiasCheck(Resource):
    """Groups whose rewards are compared, how far they may differ, and whether a finding stops a revision."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"!('{PERSON}' in self.groupBy)",
            "metadata.user_id names a person, and a person is no group: group by another label",
            ".groupBy",
        ),
    )

    group_by: list[GroupKey] = Field(
        min_length=1,
        max_length=4,
        json_schema_extra={"listType": "set"},
        description="What makes a group: `metadata.NAME`, a label of the trajectory; `result.metadata.NAME`; or "
        "`taskType`. Of each key the 20 largest groups are compared.",
    )
    max_gap: float = Field(
        default=0.05,
        ge=0,
        le=LARGEST_REWARD,
        description="Mean rewards of two groups with the same outcome may differ by this much, before normalisation. "
        "The same holds for what each component adds.",
    )
    confidence: float = Field(
        default=0.95,
        ge=0.5,
        le=0.9999,
        description="A gap is suspected when it is above its limit at this confidence, all comparisons together.",
    )
    minimum_episodes: int = Field(
        default=30, ge=10, le=10_000, description="Of one outcome, for a group to be compared at that outcome."
    )
    episodes: int = Field(default=5000, ge=100, le=20_000, description="The newest so many are looked at.")
    block_publishing: bool = Field(
        default=False,
        description="true: a new revision is published only after the check found nothing. A history too short to tell "
        "does not block.",
    )

    @model_validator(mode="after")
    def _groups_fit_together(self) -> "BiasCheck":
        if PERSON in self.group_by:
            raise ValueError(f"groupBy: {PERSON} names a person, and a person is no group: group by another label")
        if len(set(self.group_by)) < len(self.group_by):
            raise ValueError("groupBy: a key is there twice; name each once")
        return self
