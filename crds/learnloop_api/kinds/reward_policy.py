"""RewardPolicy: how an episode becomes a number."""

from typing import Annotated, Literal

from pydantic import Field

from learnloop_api.kinds.base import ObjectName, Resource, ShortText, Status


class RewardComponent(Resource):
    """One term of the weighted sum."""

    name: ObjectName = Field(description="unique within the policy")
    type: Literal["environment", "success", "efficiency", "outcome"] = Field(
        description=(
            "environment: the episode's return divided by `scale`; success: 1 when the task succeeded, else 0; "
            "efficiency: 1 - steps/`scale`, never below 0; "
            "outcome: the outcome value `key` divided by `scale`"
        )
    )
    weight: float = Field(ge=0, le=1, description="share of the total; all weights add up to 1")
    scale: float = Field(default=1.0, gt=0, description="unit of the component, e.g. the step budget for efficiency")
    key: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="which outcome value; required for type outcome"
    )


class Normalisation(Resource):
    """Puts rewards of different tasks on one scale."""

    method: Literal["none", "zscore"] = Field(
        default="zscore",
        description="zscore: (r - mean) / standard deviation over the agent's history so far",
    )
    clip: float = Field(default=10.0, gt=0, le=1000, description="normalised rewards stay within ±clip")


class RewardPolicySpec(Resource):
    """Weighted components, then normalisation."""

    components: list[RewardComponent] = Field(
        min_length=1, max_length=16, json_schema_extra={"listType": "map", "listMapKeys": ["name"]}
    )
    normalisation: Normalisation = Field(default_factory=Normalisation)


class RewardPolicyStatus(Status):
    """The published revision."""

    revision: ShortText | None = Field(default=None, description="content hash of the spec in force")
    published_at: ShortText | None = None
    agents: int | None = Field(default=None, ge=0, description="LearningAgents that use this policy")
