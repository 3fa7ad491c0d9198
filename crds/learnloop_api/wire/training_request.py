"""Requests for training, the status of runs, and studies."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from learnloop_api.kinds.training.study import Pruner, SearchDimension
from learnloop_api.wire.base import MOST, Identifier, Name, Sentence, Sha256, Timestamp, WireModel
from learnloop_api.wire.training import Heartbeat, Interval, ReturnEstimate, RunProgress
from learnloop_api.wire.trajectory import MAX_REVISION, MAX_TASK, MOST_CHOICES

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
    in the agent's status; a message with a field that no request has is refused.
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
    by: str | None = Field(default=None, max_length=256, description="the person who ordered it; null if unknown")
    verified: bool = Field(description="the API server checked that name; else it is a claim")
    at: Timestamp = Field(description="when the run began")
    value: str = Field(max_length=512, description="the annotation learnloop.dev/train")


class TrainedArtifact(WireModel):
    """The policy that a run made."""

    uri: str = Field(max_length=2048)
    sha256: Sha256


class GateVerdict(WireModel):
    """Verdict of one gate."""

    name: str = Field(max_length=1024)
    passed: bool
    message: Sentence = Field(max_length=1024, description="the numbers compared")


class RunError(WireModel):
    """Why a run failed."""

    reason: Sentence = Field(max_length=1024, description="one CamelCase word, as in the TrainingJob's Ready condition")
    message: Sentence = Field(max_length=1024, description="one sentence, with the fix where somebody can mend it")


class RunCost(WireModel):
    """CPU and GPU time that a run's pods reserved, and money where the installation names prices."""

    cpu_hours: float = Field(ge=0)
    gpu_hours: float = Field(ge=0)
    money: float | None = Field(default=None, ge=0)
    currency: str | None = Field(default=None, pattern="^[A-Z]{3}$")


class TrainingStatus(RunProgress):
    """One look at a run: sent as it is queued, with each heartbeat, and with its verdict."""

    phase: Literal[
        "queued", "starting", "training", "evaluating", "exporting", "done", "failed", "validated", "rejected"
    ] = Field(description="done: proven, the gates are not asked yet; rejected: a gate refused the proof")
    status: Literal["queued", "running", "completed", "failed"] = Field(
        description="completed and failed are final; an attempt that failed and is tried again is still running"
    )
    job_uid: str | None = Field(default=None, max_length=64, description="tells apart jobs of the same name")
    progress: float = Field(ge=0, le=1, description="share of the steps done")
    evaluation: ReturnEstimate | None = Field(default=None, description="the policy on held-out episodes")
    baseline: ReturnEstimate | None = Field(default=None, description="the serving policy on the same episodes")
    difference: Interval | None = Field(default=None, description="evaluation less baseline, by episode")
    gates: list[GateVerdict] = Field(default_factory=list, max_length=16)
    artifact: TrainedArtifact | None = None
    cost: RunCost | None = Field(default=None, description="with its end")
    error: RunError | None = None


def of_heartbeat(beat: Heartbeat) -> TrainingStatus:
    share = min(1.0, beat.step / beat.total_steps)
    return TrainingStatus.model_validate({**beat.model_dump(exclude={"curve"}), "status": "running", "progress": share})


RUNGS = 10
"""A trial is looked at after each tenth of its steps, so that trials are compared at the same points."""

Value = bool | int | float | Annotated[str, Field(max_length=63)] | Annotated[list[int], Field(max_length=8)]
TrialNumber = Annotated[int, Field(ge=0, lt=1000)]


class StudyOrder(WireModel):
    """PUT /api/v1/training/studies/{job}: idempotent; another owner starts a new study."""

    job: Name
    owner: Identifier = Field(description="uid of the TrainingJob: a deleted one of the same name had another study")
    trials: int = Field(ge=2, le=1000)
    space: list[SearchDimension] = Field(min_length=1, max_length=32)
    direction: Literal["maximize", "minimize"]
    seed: int = Field(ge=0, le=MOST)
    startup_trials: int = Field(ge=1, le=1000)
    pruner: Pruner
    cost_tolerance: float | None = Field(
        default=None, ge=0, le=1, description="trials have a cost, too, and the best is chosen as StudyCost says"
    )


class Trial(WireModel):
    """One trial. PUT …/trials/{number} begins it, once; the same number always has the same parameters."""

    number: TrialNumber
    state: Literal["running", "complete", "pruned", "failed"]
    parameters: dict[str, Value] = Field(default_factory=dict, max_length=32)
    value: float | None = Field(default=None, description="objective; of a pruned one the last intermediate value")
    cost: float | None = Field(default=None, description="second objective, of a complete one")
    spent: RunCost | None = Field(default=None, description="what its run had cost at its end")
    reported: int = Field(default=0, ge=0, lt=RUNGS, description="the last tenth of its steps with a value; 0: none")
    prune: bool = Field(default=False, description="it does badly: stop it")


class TrialProgress(WireModel):
    """PUT …/trials/{number}/progress: the return after some tenths of the steps."""

    rung: int = Field(ge=1, lt=RUNGS)
    value: float


class TrialResult(WireModel):
    """PUT …/trials/{number}/result: the end. The first one counts."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"properties": {"state": {"const": "complete"}, "value": {"type": "number"}}, "required": ["value"]},
                {"properties": {"state": {"enum": ["pruned", "failed"]}}},
            ]
        }
    )
    state: Literal["complete", "pruned", "failed"]
    value: float | None = Field(default=None, description="required with complete")
    cost: float | None = Field(default=None, ge=0, description="required with complete where the study has a cost")
    spent: RunCost | None = Field(default=None, description="what its run has cost")


class StudyState(WireModel):
    """GET /api/v1/training/studies/{job}."""

    job: Name
    owner: Identifier
    trials: list[Trial] = Field(default_factory=list, max_length=1000)
    best: TrialNumber | None = Field(default=None, description="number of the best complete trial")
    front: list[TrialNumber] = Field(
        default_factory=list, max_length=1000, description="with a cost: the Pareto front, the cheapest first"
    )
