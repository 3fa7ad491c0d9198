"""Steps of a rollout, and the decisions of people about it: approvals, orders and overrides."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import Duration, ObjectName, Resource, Revision, Rule, ShortText, Time
from learnloop_api.kinds.rollouts.gates import ShadowCheck
from learnloop_api.wire.routing import LONGEST_ANSWER, LONGEST_REASON, MOST_NUMBERS, Instead


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
            "How long the old arm stays warm and the new one is watched after 100 %; longer while many of its episodes "
            "do not end, until they are overdue. A new model waits until then; `kubectl learnloop skip` starts it."
        ),
    )
    progress_deadline_seconds: int = Field(
        default=600,
        ge=10,
        le=86400,
        description=(
            "A canary whose pods are not ready by then is rolled back. A step without evidence for this long "
            "keeps holding, with the condition Stalled: a healthy model is not rolled back for lack of traffic."
        ),
    )


Verb = Literal[
    "abort", "approve", "override", "pause", "promote", "reject", "restart", "resume", "retry", "skip", "undo"
]
Person = Annotated[str, Field(max_length=256)]


class AnsweredDecision(Resource):
    """One value of an annotation `learnloop.dev/<verb>`, answered once."""

    verb: Verb = Field(description="The annotation, without learnloop.dev/.")
    revision: Revision | None = Field(default=None, description="The revision it names.")
    step: int | None = Field(default=None, ge=1, le=1000, description="The step it names, from 1.")
    by: Person | None = Field(default=None, description="Who decided; left out where the value does not say.")
    verified: bool | None = Field(
        default=None,
        description=(
            "true: the installation's admission policy lets no one write another's name. Left out: as claimed."
        ),
    )
    at: Time = Field(description="When the operator answered.")
    outcome: Literal["obeyed", "ignored", "refused"] = Field(
        description="ignored: it fits nothing that is there, e.g. another revision; refused: it would do harm."
    )
    message: ShortText = Field(description="One sentence: what was done, or why not.")
    value: ShortText = Field(description="The annotation's value: the same one is not answered twice.")


class StandingOrder(Resource):
    """A person's order that is in force."""

    verb: Literal["pause", "promote", "undo"] = Field(
        description=(
            "pause: hold at this weight; promote: to 100 % without the rest of the evidence; undo: back to lastStable."
        )
    )
    by: Person | None = Field(default=None, description="Who gave it, in words.")
    at: Time = Field(description="Since when.")


class PastModel(Resource):
    """A model that served before."""

    uri: Annotated[str, Field(min_length=1, max_length=2048)] = Field(description="Address of the model.")
    sha256: Annotated[str, Field(max_length=64)] | None = Field(default=None, description="Digest of the model.")


class OverrideStatus(Resource):
    """One override. Those that are over stay for a day: by them episodes are known that they have touched."""

    agent: ObjectName | None = Field(default=None, description="The agent it is about; left out: all.")
    instead: Instead = Field(
        description=(
            "fixed: one answer to everything; fallback: the agent's own fallback decides, or the gateway's; stop: "
            "no request gets an answer."
        )
    )
    choice: int | None = Field(
        default=None, ge=-(2**31), le=2**31 - 1, description="fixed: the action, where it is one of several."
    )
    numbers: list[float] | None = Field(
        default=None, max_length=MOST_NUMBERS, description="fixed: the action, where it is made of numbers."
    )
    answer: Annotated[str, Field(max_length=LONGEST_ANSWER)] | None = Field(
        default=None, description="fixed: the text that a language model's users get."
    )
    since: Time = Field(description="When the operator obeyed.")
    until: Time = Field(description="When it ends by itself, by the API server's clock; or when it was ended.")
    over: bool = Field(default=False, description="It is in force no longer.")
    reason: Annotated[str, Field(max_length=LONGEST_REASON)] = Field(description="Why, as the person said.")
    by: Person | None = Field(default=None, description="Who ordered it.")
    verified: bool | None = Field(default=None, description="true: the API server checked that name.")
