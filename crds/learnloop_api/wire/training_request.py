"""Somebody asks for training now, and may ask for less than the agent's template: `agent.rl.training.request.v1`."""

from typing import Annotated

from pydantic import Field

from learnloop_api.wire.base import Identifier, Name, Timestamp, WireModel
from learnloop_api.wire.experience import MOST_CHOICES
from learnloop_api.wire.trajectory import MAX_REVISION, MAX_TASK

MOST_PARAMETERS = 32

Word = Annotated[str, Field(max_length=63)]
Widths = Annotated[list[Annotated[int, Field(ge=1, le=65536)]], Field(min_length=1, max_length=8)]
Hyperparameter = bool | int | float | Word | Widths
ParameterName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z][A-Za-z0-9]*$")]


class RequestedDataset(WireModel):
    """Logged episodes to learn from: of those that `spec.training.data.filter` allows, the ones that meet all this."""

    since: Timestamp | None = Field(default=None, description="received then or later")
    until: Timestamp | None = Field(default=None, description="received before then")
    max_age_seconds: int | None = Field(default=None, ge=1, le=315_360_000)
    tasks: list[Annotated[str, Field(min_length=1, max_length=MAX_TASK)]] = Field(
        default_factory=list, max_length=MOST_CHOICES, description="of one of these tasks; empty: of any"
    )
    model_revisions: list[Annotated[str, Field(min_length=1, max_length=MAX_REVISION)]] = Field(
        default_factory=list, max_length=MOST_CHOICES, description="played by one of these; empty: by any"
    )
    min_reward: float | None = None
    max_reward: float | None = None
    success: bool | None = None
    opted_in: bool | None = Field(default=None, description="true: only of people who agreed to it")


class RequestedCompute(WireModel):
    """Less than the template's."""

    total_steps: int | None = Field(default=None, ge=1, le=10_000_000_000)
    workers: int | None = Field(default=None, ge=0, le=1024)
    gpus: int | None = Field(default=None, ge=0, le=1024, description="of each rank")
    deadline_seconds: int | None = Field(default=None, ge=1, le=31_536_000)


class RequestedEvaluation(WireModel):
    """A proof at least as hard as the template's."""

    episodes: int | None = Field(default=None, ge=1, le=10_000)
    min_return: float | None = None
    min_improvement: float | None = None
    significant: bool | None = Field(default=None, description="true: the gain must be shown at 95 %")


class TrainingRequest(WireModel):
    """Somebody asks for training now: subject `agent.rl.training.request.v1.<namespace>.<agent>`.

    The run is the LearningAgent's own template, narrowed by what is said here. What would widen it is refused by name,
    in the agent's status; a field that no request has makes the message a dead letter.
    """

    request_id: Identifier = Field(description="chosen by the sender; the newest one of an agent is acted on, once")
    reason: str = Field(default="", max_length=256, description="why, in one sentence; goes into the run's event")
    dataset: RequestedDataset | None = None
    hyperparameters: dict[ParameterName, Hyperparameter] = Field(
        default_factory=dict,
        max_length=MOST_PARAMETERS,
        description="within what spec.training.requests.hyperparameters allows",
    )
    compute: RequestedCompute | None = None
    evaluation: RequestedEvaluation | None = None
    requested_at: Timestamp | None = Field(default=None, description="when the sender asked; only for people")

    @property
    def narrows(self) -> bool:
        """It asks for something else than the template."""
        return bool(self.dataset or self.hyperparameters or self.compute or self.evaluation)


class TrainingOrder(WireModel):
    """PUT /api/v1/agents/{agent}/training-orders/{order}: a person had the agent train. Operator only."""

    agent: Name
    job: Name = Field(description="the TrainingJob that began")
    by: str | None = Field(default=None, max_length=256, description="who ordered it; null where nobody said")
    verified: bool = Field(description="the API server checked that name; else it is a claim")
    at: Timestamp = Field(description="when the run began")
    value: str = Field(max_length=512, description="the annotation learnloop.dev/train")
