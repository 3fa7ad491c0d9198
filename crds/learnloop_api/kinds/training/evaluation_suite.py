"""The evaluation suite: what is asked of a policy beside its return, and what the answer looks like in a status."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import Resource, Rule, ShortText

Dimension = Literal["sample-efficiency", "generalisation", "robustness", "coordination", "adaptability"]
DIMENSIONS: tuple[Dimension, ...] = (
    "sample-efficiency",
    "generalisation",
    "robustness",
    "coordination",
    "adaptability",
)
WEIGHTS: dict[Dimension, float] = {
    "sample-efficiency": 0.3,
    "generalisation": 0.2,
    "robustness": 0.2,
    "coordination": 0.2,
    "adaptability": 0.1,
}
"""Shares of the overall score; those of dimensions that were not measured go to the others in proportion."""


class Suite(Resource):
    """Each dimension plays the exported and the serving policy on held-out seeds that nothing else uses."""

    dimensions: list[Dimension] = Field(
        default_factory=lambda: list(DIMENSIONS),
        min_length=1,
        max_length=5,
        description="Dimensions to measure. sample-efficiency: the return along training. generalisation: levels "
        "that were not trained. robustness: noisy observations and perturbed physics. coordination: "
        "teams with partners that follow the serving policy. adaptability: the return after a little "
        "fine-tuning in changed conditions. One that does not apply to the environment is reported as "
        "not measured.",
        json_schema_extra={"listType": "set"},
    )
    episodes: int = Field(
        default=64, ge=8, le=1000, description="Episodes of each of the two policies under each condition."
    )
    max_seconds: int = Field(
        default=120,
        ge=5,
        le=86_400,
        description="Wall time of the whole suite; a dimension that finds no time left is reported as not measured.",
    )
    noise: float = Field(
        default=0.1,
        gt=0,
        le=10,
        description="Robustness: standard deviation of the noise on each observation, relative to its own.",
    )
    perturbation: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="Robustness: physical parameters are raised and lowered by this share, and this share of actions "
        "is the one before again.",
    )
    adaptation_steps: int = Field(
        default=4096, ge=1, le=10_000_000, description="Adaptability: environment steps of fine-tuning."
    )


class SuiteGate(Resource):
    """What one dimension must show; one that was not measured fails its gate."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.minIqm) || has(self.minImprovement)",
            "a gate without a bar proves nothing: set minIqm or minImprovement",
        ),
    )

    dimension: Dimension = Field(description="The dimension the bars are for.")
    min_iqm: float | None = Field(default=None, description="Interquartile mean return at least this.")
    min_improvement: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Probability of improvement over the serving policy: lower end of its 95 % interval at least this.",
    )


SuiteGates = Annotated[
    list[SuiteGate],
    Field(
        max_length=5,
        json_schema_extra={"listType": "map", "listMapKeys": ["dimension"]},
    ),
]


class DimensionStatus(Resource):
    """One dimension in words and figures."""

    dimension: Dimension = Field(description="Which dimension.")
    measured: bool = Field(description="Whether it could be measured.")
    iqm: float | None = Field(default=None, description="Interquartile mean return under its conditions.")
    improvement: float | None = Field(
        default=None, description="Probability that its return is above the serving policy's, averaged over conditions."
    )
    message: ShortText = Field(description="The figures with their 95 % intervals, or why there are none.")


class EvaluationSuiteStatus(Resource):
    """What the evaluation suite found."""

    overall: float | None = Field(
        default=None,
        description="Weighted mean of the dimensions' probabilities of improvement; 0.5: no better, no worse.",
    )
    improvement: float | None = Field(
        default=None, description="Probability of improvement over the serving policy in the held-out evaluation."
    )
    dimensions: list[DimensionStatus] = Field(
        default_factory=list,
        max_length=5,
        description="One entry for each dimension asked for.",
        json_schema_extra={"listType": "map", "listMapKeys": ["dimension"]},
    )
