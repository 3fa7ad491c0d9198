"""Steps of a rollout: weights, shadow steps, and their approvals."""

from typing import ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import Resource, Rule
from learnloop_api.kinds.rollouts.gates import Duration, ShadowCheck


class StepApproval(Resource):
    """How long a step waits for a person, and what then."""

    within: Duration = Field(default="48h", description="From when everything but the approval is there.")
    otherwise: Literal["hold", "rollBack"] = Field(
        default="rollBack",
        description="rollBack: the canary is rolled back, as for a step that was rejected. hold: it goes on waiting, "
        "with the condition Stalled and one warning.",
    )


class RolloutStep(Resource):
    """One step up."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.weight == 0) == has(self.shadow)",
            "weight 0 and shadow go together: a shadow step has `weight: 0, shadow: {}`, any other a weight from 1",
            ".weight",
        ),
        Rule(
            "!has(self.approval) || self.pause",
            "approval says how long a pause waits: set pause to true, or leave approval out",
            ".approval",
        ),
    )

    weight: int = Field(ge=0, le=100, description="Percent of new episodes for the canary; 0 for a shadow step.")
    shadow: ShadowCheck | None = Field(
        default=None,
        description=(
            "The canary gets copies of the requests stable answers, and no user gets its answers. Shadow steps come "
            "first; minEpisodes does not apply to them."
        ),
    )
    min_episodes: int = Field(
        default=20, ge=1, le=10_000_000, description="Finished canary episodes before the next step."
    )
    min_seconds: int = Field(default=0, ge=0, le=2_592_000, description="Seconds at this weight before the next step.")
    pause: bool = Field(
        default=False,
        description="Wait here for `kubectl learnloop approve`.",
    )
    approval: StepApproval | None = Field(
        default=None, description="How long the pause waits, and what then; left out, for as long as it takes."
    )


def _default_steps() -> list[RolloutStep]:
    return [RolloutStep(weight=weight) for weight in (10, 25, 50, 100)]


class Rollout(Resource):
    """The way to 100 %."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.steps.map(s, s.weight).isSorted()"
            " && self.steps.all(s, s.weight == 0 || self.steps.exists_one(t, t.weight == s.weight))",
            "the weights of the steps must rise from step to step, e.g. 10, 25, 50, 100; shadow steps come first",
            ".steps",
        ),
        Rule(
            "self.steps.size() == 0 || self.steps[self.steps.size() - 1].weight == 100",
            "the last step must have weight 100: add `- weight: 100`",
            ".steps",
        ),
    )

    steps: list[RolloutStep] = Field(
        default_factory=_default_steps,
        min_length=1,
        max_length=20,
        description="Weights that rise from step to step and end at 100.",
    )
    keep_for_seconds: int = Field(
        default=600,
        ge=0,
        le=2_592_000,
        description=(
            "How long the old arm stays warm and the new one is watched after 100 %. A new model waits until then; "
            "`kubectl learnloop skip` lets it begin."
        ),
    )
    progress_deadline_seconds: int = Field(
        default=600,
        ge=10,
        le=86400,
        description=(
            "A canary whose pods are not ready by then is rolled back. A step that has got no evidence for so long "
            "goes on holding, with the condition Stalled: a healthy model is not rolled back for lack of traffic."
        ),
    )
