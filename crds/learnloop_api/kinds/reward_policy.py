"""A RewardPolicy: its components, their normalisation and bounds, shaping, credit, constraints and bias."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from learnloop_api.kinds.base import ObjectName, Resource, Rule, ShortText, Status, Time, explained
from learnloop_api.kinds.evaluators import Evaluator

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
"""The label that names a person. A person is not a group."""

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
            "metadata.user_id names a person, not a group: group by another label",
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
            raise ValueError(f"groupBy: {PERSON} names a person, not a group: group by another label")
        if len(set(self.group_by)) < len(self.group_by):
            raise ValueError("groupBy: a key is there twice; name each once")
        return self


WEIGHT_TOLERANCE = 1e-6

READING = ("quality", "collision", "exploration", "cooperation", "coordination")
"""Types with an outcome value of their own, in whose place `key` may name another."""

ComponentType = Literal[
    "environment",
    "success",
    "efficiency",
    "quality",
    "feedback",
    "base",
    "time",
    "collision",
    "exploration",
    "cooperation",
    "coordination",
    "smoothness",
    "difference",
    "outcome",
    "evaluator",
]


class RewardComponent(Resource):
    """One term of the weighted sum."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"has(self.key) ? self.type in {['outcome', *READING]} : self.type != 'outcome'",
            f"set key with type outcome; {', '.join(READING)} may have one; no other type has an outcome value to name",
            ".key",
        ),
        Rule(
            "(self.type == 'evaluator') == has(self.evaluator)",
            "set evaluator with type evaluator, and only then: it says how the output is scored",
            ".evaluator",
        ),
    )

    name: ObjectName = Field(description="Unique within the policy.")
    type: ComponentType = Field(
        description=(
            "environment: the episode's return / `scale`. success: 1 when the task was completed, else 0. "
            "efficiency: 1 - steps/`scale`, never below 0. base: steps/`scale`. time: -steps/`scale`. "
            "From the outcome values: quality (`quality`/`scale`, 0 to 1), feedback (`feedback`/`scale`, -1 to 1), "
            "collision (-`collisions`/`scale`), exploration (`discoveries`/`scale`), cooperation "
            "(`cooperation`/`scale`), coordination (`joint_successes`/`joint_attempts`), difference ((`global` - "
            "`counterfactual`)/`scale`), outcome (the value `key`/`scale`). The first five read `key` instead, if set. "
            "From the steps: smoothness, 1 - the mean change between consecutive actions/`scale`, never below 0. "
            "From the output: evaluator, the score that `evaluator` gives it, 0 to 1."
        )
    )
    weight: float = Field(ge=0, le=1, description="Share of the total; all weights add up to 1.")
    scale: float = Field(default=1.0, gt=0, description="Unit of the component, e.g. the step budget for efficiency.")
    key: OutcomeKey | None = Field(
        default=None,
        description="Which outcome value; required for type outcome. Played episodes have those of the environment's "
        "`info`: K, the sum over the steps; K.last; K.max.",
    )
    evaluator: Evaluator | None = Field(
        default=None, description="How the output is scored; required for type evaluator."
    )

    @model_validator(mode="after")
    def _key_goes_with_outcome(self) -> "RewardComponent":
        if self.type == "outcome" if self.key is None else self.type not in ("outcome", *READING):
            raise ValueError(f"key: {self.key!r} with type {self.type}: set it with outcome or {', '.join(READING)}")
        if (self.type == "evaluator") != (self.evaluator is not None):
            raise ValueError(f"evaluator: with type {self.type}: set evaluator with type evaluator, and only then")
        return self


def default_components() -> list[RewardComponent]:
    """Completion 40 %, efficiency 20 % of a budget of 100 steps, quality 15 %, feedback 25 %."""
    return [
        RewardComponent(name="completion", type="success", weight=0.4),
        RewardComponent(name="efficiency", type="efficiency", weight=0.2, scale=100),
        RewardComponent(name="quality", type="quality", weight=0.15),
        RewardComponent(name="feedback", type="feedback", weight=0.25),
    ]


class RewardPolicySpec(Resource):
    """Weighted components, shaping, normalisation, bounds and constraints.

    A change publishes a new revision; rewards name the one they used.
    """

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.components.map(c, c.weight).sum() < 1.0 + {WEIGHT_TOLERANCE:f}",
            "the weights of all components must add up to 1, and these are more: lower some",
            ".components",
        ),
        Rule(
            f"self.components.map(c, c.weight).sum() > 1.0 - {WEIGHT_TOLERANCE:f}",
            "the weights of all components must add up to 1, and these are less: raise some",
            ".components",
        ),
    )

    components: list[RewardComponent] = Field(
        default_factory=default_components,
        min_length=1,
        max_length=16,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="The terms of the sum; their names are unique and their weights add up to 1. Left out: completion "
        "40 %, efficiency 20 %, quality 15 %, feedback 25 %.",
    )
    missing: Literal["zero", "reweigh"] = Field(
        default="zero",
        description="A component whose measurement an episode lacks: zero: it counts as 0; reweigh: the others share "
        "its weight. Either way the reward's confidence is lower by that weight.",
    )
    shaping: PotentialShaping | None = Field(default=None, description="Added to the sum, before normalisation.")
    normalisation: Normalisation = Field(
        default_factory=Normalisation, description="What is done to the sum before it is stored as the reward."
    )
    bounds: Bounds | None = Field(default=None, description="Limits of the reward, after normalisation.")
    constraints: list[SafetyConstraint] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="Safety limits that come last: no component can make up for breaking one.",
    )
    credit: CreditAssignment = Field(
        default_factory=CreditAssignment, description="How the reward is divided among the episode's steps."
    )
    team_credit: TeamCredit = Field(
        default_factory=TeamCredit, description="How the reward is divided among the agents that took part."
    )

    bias: BiasCheck | None = Field(
        default=None,
        description="Compares what groups of episodes earn at equal outcomes; condition BiasSuspected. No part of the "
        "revision: a change of it changes no reward.",
    )
    dry_run: bool = Field(
        default=False,
        description="true: this content is only tried on the newest logged episodes and status.dryRun tells how its "
        "ranking compares with the revision in force, which stays in force.",
    )

    @model_validator(mode="after")
    def _components_fit_together(self) -> "RewardPolicySpec":
        total = sum(component.weight for component in self.components)
        if abs(total - 1) >= WEIGHT_TOLERANCE:
            raise ValueError(f"components: the weights add up to {total:g}, must add up to 1")
        _named_once("components", [component.name for component in self.components])
        _named_once("constraints", [constraint.name for constraint in self.constraints])
        return self


def _named_once(field: str, names: list[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{field}: {', '.join(twice)} is there twice; give each its own name")


class DryRunStatus(Resource):
    """Result of a dry-run."""

    revision: ShortText = Field(description="Content hash of the spec that was tried.")
    correlation: float | None = Field(
        default=None, ge=-1, le=1, description="Spearman's rank correlation with the policy in force."
    )
    trajectories: int = Field(ge=0, description="Logged episodes that were compared.")
    message: ShortText = Field(description="The correlation, and which agents gain and lose most.")
    bias: ShortText | None = Field(default=None, description="What the bias check found, where spec.bias asks for one.")


class RewardPolicyStatus(Status):
    """The published revision."""

    revision: ShortText | None = Field(default=None, description="Content hash of the spec in force.")
    published_at: Time | None = Field(default=None, description="When the data plane took that revision.")
    agents: int | None = Field(default=None, ge=0, description="LearningAgents that use this policy.")
    dry_run: DryRunStatus | None = Field(default=None, description="The last dry-run, while spec.dryRun is true.")
