"""Status of a TrainingJob: progress, proof, lineage and the reason."""

from pydantic import Field

from learnloop_api.kinds.base import Digest, ObjectName, Resource, ShortText, Status, Time, Uri
from learnloop_api.kinds.training.evaluation import EvaluationSuiteStatus
from learnloop_api.kinds.training.study import StudyStatus


class ReturnStatus(Resource):
    """Mean episode return with its 95 % interval."""

    episodes: int = Field(ge=0, description="Episodes behind the figures.")
    mean: float = Field(description="Mean return.")
    iqm: float = Field(description="Interquartile mean (arXiv 2108.13264).")
    ci_low: float = Field(description="Lower end of the 95 % bootstrap interval of the mean.")
    ci_high: float = Field(description="Upper end of the 95 % bootstrap interval of the mean.")


class GateResult(Resource):
    """One gate's verdict."""

    name: ShortText = Field(description="Which gate.")
    passed: bool = Field(description="Whether the evaluation showed it.")
    message: ShortText = Field(description="The numbers compared, in one sentence.")


class ArtifactStatus(Resource):
    """The exported policy."""

    uri: Uri = Field(description="Address of the ONNX file.")
    sha256: Digest = Field(description="Digest of the ONNX file.")


class ExportStatus(Resource):
    """The exported policy in a further format."""

    format: ShortText = Field(description="torchscript, peft-config or gguf-lora.")
    uri: Uri = Field(description="Address of the file.")
    sha256: Digest = Field(description="Digest of the file.")


class CostStatus(Resource):
    """A mean over held-out episodes."""

    name: ShortText = Field(description="Constraint of the RewardPolicy, or interventions: those of the shield.")
    mean: float = Field(description="Its mean.")
    maximum: float | None = Field(default=None, description="The constraint's limit.")


class LineageStatus(Resource):
    """Origin of a model."""

    learning_agent: ObjectName | None = Field(default=None, description="The LearningAgent the run was made for.")
    reward_policy: ObjectName | None = Field(default=None, description="Its RewardPolicy.")
    reward_policy_revision: ShortText | None = Field(
        default=None, description="Revision of the RewardPolicy when the run began."
    )
    trajectories: int | None = Field(default=None, ge=0, description="Trajectories the agent had when the run began.")


class RunCostStatus(Resource):
    """CPU and GPU time that the run's pods reserved by their requests, lost attempts included; of a study, all trials.

    No gain where the rank stays.
    """

    cpu_hours: float = Field(ge=0, description="Hours of one CPU.")
    gpu_hours: float = Field(ge=0, description="Hours of one GPU.")
    money: float | None = Field(default=None, ge=0, description="By trainer.prices of the installation.")
    currency: ShortText | None = Field(default=None, description="Of money.")
    gain_per_hour: float | None = Field(
        default=None, description="evaluation less baseline for each GPU-hour; without GPUs, for each CPU-hour."
    )
    gain_per_money: float | None = Field(default=None, description="The same for each unit of money.")
    counted_at: Time | None = Field(default=None, description="Newest count.")


class TrainingJobStatus(Status):
    """Progress, proof and the reason."""

    attempts: int | None = Field(default=None, ge=0, description="Starts of the whole gang so far.")
    step: int | None = Field(default=None, ge=0, description="Environment steps done by all ranks together.")
    total_steps: int | None = Field(default=None, ge=1, description="Environment steps wanted.")
    progress: ShortText | None = Field(default=None, description="Share of the steps done, e.g. 42%.")
    eta: ShortText | None = Field(default=None, description="Time left at the current speed, e.g. 1m20s.")
    steps_per_second: float | None = Field(default=None, description="Environment steps a second, all ranks together.")
    world_size: int | None = Field(default=None, ge=1, description="Ranks that take part.")
    recent_return: ReturnStatus | None = Field(default=None, description="The newest training episodes.")
    evaluation: ReturnStatus | None = Field(default=None, description="The exported policy on held-out seeds.")
    baseline: ReturnStatus | None = Field(default=None, description="The serving policy on the same held-out seeds.")
    return_text: ShortText | None = Field(
        default=None, alias="return", description="Mean return with its 95 % interval, e.g. 487.2 [481.0, 492.1]."
    )
    costs: list[CostStatus] | None = Field(
        default=None, max_length=17, description="What held-out episodes cost: constraints and the shield."
    )
    validation: ReturnStatus | None = Field(
        default=None, description="The exported policy on validation seeds, by which a study chooses."
    )
    study: StudyStatus | None = Field(default=None, description="How far the search has come.")
    suite: EvaluationSuiteStatus | None = Field(default=None, description="What evaluation.suite found.")
    gates: list[GateResult] | None = Field(default=None, max_length=16, description="The verdict of every gate.")
    cost: RunCostStatus | None = None
    artifact: ArtifactStatus | None = None
    exports: list[ExportStatus] | None = Field(
        default=None, max_length=8, description="The same policy in the formats that spec.export asks for."
    )
    backend: ShortText | None = Field(
        default=None, description="What runs the ranks: a value of spec.backend, and never auto."
    )
    engine: ShortText | None = Field(default=None, description="The engine that trains, and why it is that one.")
    started_at: Time | None = Field(default=None, description="When the run began, less the time it waited.")
    attempt_started_at: Time | None = Field(
        default=None, description="When the current attempt began, or went on after a stop that was not its own doing."
    )
    queued_at: Time | None = Field(
        default=None, description="Since when the run waits in a queue; none of its clocks goes on meanwhile."
    )
    preemptions: int | None = Field(
        default=None,
        ge=0,
        description="How often a node was taken away from a rank, or the run made way; none cost an attempt.",
    )
    update: int | None = Field(
        default=None, ge=0, description="Newest update that was judged, of a run whose rank stays; 0: the run itself."
    )
    updated_at: Time | None = Field(default=None, description="When it was judged.")
    refused: list[Digest] | None = Field(
        default=None, max_length=16, description="Artifacts of the newest updates that were refused."
    )
    finished_at: Time | None = Field(default=None, description="When the run ended, either way.")
    lineage: LineageStatus | None = None
