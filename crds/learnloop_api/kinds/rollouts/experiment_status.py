"""What an experiment has found, arm by arm, and all it needs to go on after a restart."""

from typing import Annotated, Literal

from pydantic import Field

from learnloop_api.kinds.base import Digest, Resource, Revision, ShortText, Time, Uri
from learnloop_api.kinds.rollouts.experiment import MOST_ARMS, MOST_GUARDRAILS


class ExperimentGuardrailStatus(Resource):
    """What one guardrail has shown of one arm. What decides is in the logarithms; the rest is for people."""

    name: ShortText = Field(description="Its name in spec.experiment.guardrails.")
    standing: Literal["unproven", "holds", "broken"] = Field(
        description="holds: proven not worse than stable by maxDrop; broken: proven worse by more; unproven: neither."
    )
    mean: float | None = Field(default=None, description="Mean of the metric, in its own unit.")
    bound_seconds: float | None = Field(
        default=None, description="latency, of stable: the bound of its quantile, fixed before the comparison began."
    )
    block: float | None = Field(
        default=None,
        ge=1,
        description="latency and promql, of stable: so many events count as one, those of one of its episodes.",
    )
    log_fine: float = Field(default=0.0, description="Logarithm of the e-value of `not worse by maxDrop`.")
    log_worse: float = Field(default=0.0, description="Logarithm of the e-value of `worse by more than maxDrop`.")
    judged: Annotated[list[float], Field(max_length=2)] | None = Field(
        default=None, description="Episodes compared and the sum of their values, 0 to 1."
    )
    seen: Annotated[list[float], Field(max_length=2)] | None = Field(
        default=None, description="The same counted by the source at the last look."
    )


class ExperimentArmStatus(Resource):
    """One arm of the experiment."""

    name: ShortText = Field(
        description="Its name; `stable` for the arm that served before, `canary` for that of the rollout."
    )
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
    seen: Annotated[list[float], Field(max_length=2)] | None = Field(
        default=None, description="The same counted by the source at the last look."
    )
    guardrails: list[ExperimentGuardrailStatus] | None = Field(
        default=None,
        max_length=MOST_GUARDRAILS,
        json_schema_extra={"listType": "map", "listMapKeys": ["name"]},
        description="What each guardrail has shown of it; of stable only what the others are compared with.",
    )


class ExperimentStatus(Resource):
    """Where the experiment stands, and the sentence why."""

    id: Revision = Field(description="Hash of the experiment in the spec: a changed one is another experiment.")
    step: int | None = Field(
        default=None,
        ge=0,
        le=20,
        description="Index of the rollout step it belongs to, from 0; left out for spec.experiment.",
    )
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
