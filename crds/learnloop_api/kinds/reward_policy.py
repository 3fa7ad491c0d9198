"""RewardPolicy: how an episode becomes a number."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from learnloop_api.kinds.base import ObjectName, Resource, ShortText, Status, Time
from learnloop_api.kinds.rules import Rule

WEIGHT_TOLERANCE = 1e-6


class RewardComponent(Resource):
    """One term of the weighted sum."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.type == 'outcome') == has(self.key)",
            "set key with type outcome, and only then: it names the outcome value to use",
            ".key",
        ),
    )

    name: ObjectName = Field(description="Unique within the policy.")
    type: Literal["environment", "success", "efficiency", "outcome"] = Field(
        description=(
            "environment: the episode's return divided by `scale`; success: 1 when the task succeeded, else 0; "
            "efficiency: 1 - steps/`scale`, never below 0; "
            "outcome: the outcome value `key` divided by `scale`."
        )
    )
    weight: float = Field(ge=0, le=1, description="Share of the total; all weights add up to 1.")
    scale: float = Field(default=1.0, gt=0, description="Unit of the component, e.g. the step budget for efficiency.")
    key: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="Which outcome value; required for type outcome."
    )

    @model_validator(mode="after")
    def _key_goes_with_outcome(self) -> "RewardComponent":
        if (self.type == "outcome") != (self.key is not None):
            raise ValueError(f"key: {self.key!r} with type {self.type}: set key with type outcome, and only then")
        return self


class Normalisation(Resource):
    """Puts rewards of different tasks on one scale."""

    method: Literal["none", "zscore"] = Field(
        default="zscore",
        description="zscore: (r - mean) / standard deviation over the agent's history so far; none: r as it is.",
    )
    clip: float = Field(default=10.0, gt=0, le=1000, description="Normalised rewards stay within ±clip.")


class RewardPolicySpec(Resource):
    """Weighted components, then normalisation. A change publishes a new revision; rewards name the one they used."""

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
        min_length=1,
        max_length=16,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="The terms of the sum; their names are unique and their weights add up to 1.",
    )
    normalisation: Normalisation = Field(
        default_factory=Normalisation, description="What is done to the sum before it is stored as the reward."
    )

    @model_validator(mode="after")
    def _components_fit_together(self) -> "RewardPolicySpec":
        total = sum(component.weight for component in self.components)
        if abs(total - 1) >= WEIGHT_TOLERANCE:
            raise ValueError(f"components: the weights add up to {total:g}, must add up to 1")
        names = [component.name for component in self.components]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"components: {', '.join(twice)} is there twice; give each component its own name")
        return self


class RewardPolicyStatus(Status):
    """The published revision."""

    revision: ShortText | None = Field(default=None, description="Content hash of the spec in force.")
    published_at: Time | None = Field(default=None, description="When the data plane took that revision.")
    agents: int | None = Field(default=None, ge=0, description="LearningAgents that use this policy.")
