"""Experiments: several arms compared, and their status."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import URI_FORMS, Digest, ObjectName, Resource, Revision, Rule, ShortText, Time, Uri
from learnloop_api.kinds.rollouts.analysis import ReturnRange

STABLE_FLOOR = 5
"""Percent of new episodes that stable keeps: it is one of the arms."""
MOST_ARMS = 7


class ExperimentArm(Resource):
    """One model that challenges stable."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.sha256) || self.uri.startsWith('uniform://')",
            "an arm needs the sha256 of its ONNX file: set the digest, as sha256sum prints it",
            ".sha256",
        ),
        Rule("self.name != 'stable'", "stable is an arm already: choose another name", ".name"),
        *URI_FORMS,
    )

    name: ObjectName = Field(description="What verdicts call it; unique, and not `stable`.")
    uri: Uri = Field(description="Address of the model, as in spec.model.uri.")
    sha256: Digest | None = Field(default=None, description="Digest of the ONNX file; required, except for uniform://.")
    weight: int = Field(ge=1, le=95, description="Percent of new episodes; what the arms leave goes to stable.")


class ExperimentMetric(Resource):
    """Criterion that makes one arm better than another."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "(self.type == 'return') == has(self.returnRange)",
            "arms are compared by return within a range: set returnRange with type return, and only then",
            ".returnRange",
        ),
    )

    type: Literal["success", "return", "errors"] = Field(
        default="success",
        description="success: share of successful episodes; return: mean return; errors: fewest episodes in error.",
    )
    return_range: ReturnRange | None = Field(default=None, description="Where returns lie; required with type return.")


class Experiment(Resource):
    """2 to 8 arms, stable among them, with a fixed split; it ends with a winner or without one, but it ends."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.arms.map(a, a.weight).sum() <= {100 - STABLE_FLOOR}",
            f"the arms' weights leave stable less than {STABLE_FLOOR} %: lower some",
            ".arms",
        ),
        Rule(
            "self.arms.all(a, self.arms.exists_one(b, b.uri == a.uri))",
            "two arms have the same model: an arm is known by its model, remove one",
            ".arms",
        ),
        Rule(
            "self.maxEpisodes >= self.minEpisodes * (self.arms.size() + 1)",
            "maxEpisodes ends the experiment before every arm has minEpisodes: raise it",
            ".maxEpisodes",
        ),
    )

    arms: list[ExperimentArm] = Field(
        min_length=1,
        max_length=MOST_ARMS,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="The challengers; stable takes part with what their weights leave.",
    )
    metric: ExperimentMetric = Field(default_factory=ExperimentMetric, description="What is compared.")
    alpha: float = Field(
        default=0.05,
        ge=1e-6,
        le=0.2,
        description=(
            "Chance of naming an arm the winner that is not better than all others, over all arms and looks together."
        ),
    )
    min_episodes: int = Field(
        default=50, ge=1, le=10_000_000, description="Episodes an arm must have finished before it may win or lose."
    )
    max_episodes: int = Field(
        default=100_000, ge=2, le=1_000_000_000, description="Episodes of all arms together after which it ends."
    )
    max_seconds: int = Field(
        default=604_800, ge=60, le=31_536_000, description="Seconds after which it ends; a week when left out."
    )
    on_winner: Literal["promote", "wait"] = Field(
        default="wait",
        description=(
            "promote: the winner becomes stable and is guarded as after a rollout. wait: it keeps its share until "
            "`kubectl learnloop promote`. Either way spec.model stays as it is: set it to the winner "
            "to keep it when the experiment is removed."
        ),
    )


class ExperimentArmStatus(Resource):
    """One arm of the experiment."""

    name: ShortText = Field(description="Its name; `stable` for the arm that served before.")
    revision: Revision = Field(description="Hash of the model and of the pods that serve it.")
    uri: Uri = Field(description="Address of the model.")
    sha256: Digest | None = Field(default=None, description="Digest of the model.")
    weight: int = Field(ge=0, le=100, description="Percent of new episodes it was given.")
    standing: Literal["playing", "beaten", "withdrawn"] = Field(
        description="playing: may still win; beaten: another arm is proven better; withdrawn: it did not hold its bars."
    )
    ready: bool = Field(default=False, description="Whether it has pods that answer.")
    since: Time | None = Field(default=None, description="When its standing or its readiness last changed.")
    message: ShortText | None = Field(default=None, description="Why it is out.")
    episodes: int | None = Field(default=None, ge=0, description="Finished episodes at the last look.")
    mean: float | None = Field(default=None, description="Mean of the metric, in its own unit.")
    low: float | None = Field(default=None, description="Lower end of its confidence sequence, valid at every look.")
    high: float | None = Field(default=None, description="Upper end of its confidence sequence.")
    chance_better: float | None = Field(
        default=None, description="1 minus the always-valid p-value of 'no better than stable'."
    )
    log_better: Annotated[list[float], Field(max_length=MOST_ARMS + 1)] | None = Field(
        default=None, description="Logarithms of the e-values of 'better than' each arm, in the order of the arms."
    )
    judged: Annotated[list[float], Field(max_length=2)] | None = Field(
        default=None, description="Episodes compared and the sum of their values, 0 to 1."
    )
    counted: Annotated[list[float], Field(max_length=2)] | None = Field(
        default=None, description="The same counted by the source at the last look."
    )


class ExperimentStatus(Resource):
    """Progress of the experiment, and the reason."""

    id: Revision = Field(description="Hash of the experiment in the spec: a changed one is another experiment.")
    phase: Literal["Starting", "Running", "Won", "Finished"] = Field(
        description="Starting: pods come up; Running: arms are compared; Won: the winner is not promoted yet; Finished."
    )
    started_at: Time | None = Field(default=None, description="When the arms began to play, or to start.")
    finished_at: Time | None = Field(default=None, description="When it ended.")
    arms: list[ExperimentArmStatus] = Field(
        default_factory=list,
        max_length=MOST_ARMS + 1,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="Stable first.",
    )
    winner: ShortText | None = Field(default=None, description="Name of the arm proven better than all others.")
    approved_by: ShortText | None = Field(default=None, description="Who let the winner take over.")
    promoted_over: Revision | None = Field(
        default=None,
        description="What spec.model meant when the winner took over; as long as it does, the winner serves instead.",
    )
    message: ShortText | None = Field(default=None, description="The last decision about it in one sentence.")
