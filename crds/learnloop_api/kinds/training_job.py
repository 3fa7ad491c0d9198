"""TrainingJob: one training run, from a PyTorchJob to a proven artifact."""

from typing import Annotated, Literal

from pydantic import Field

from learnloop_api.kinds.base import (
    Digest,
    LocalRef,
    ObjectName,
    PodOptions,
    Resource,
    ShortText,
    Status,
    Time,
    Uri,
)


class PpoParameters(Resource):
    """Proximal policy optimisation (Schulman et al., 2017, arXiv 1707.06347)."""

    learning_rate: float = Field(default=2.5e-3, gt=0, le=1)
    discount: float = Field(default=0.99, ge=0, le=1)
    gae_lambda: float = Field(default=0.95, ge=0, le=1)
    clip: float = Field(default=0.2, gt=0, le=1)
    entropy_coefficient: float = Field(default=0.01, ge=0, le=1)
    value_coefficient: float = Field(default=0.5, ge=0, le=10)
    max_gradient_norm: float = Field(default=0.5, gt=0, le=100)
    environments: int = Field(default=64, ge=1, le=4096, description="parallel environments over all ranks together")
    horizon: int = Field(default=32, ge=1, le=65536, description="steps of each environment between updates")
    epochs: int = Field(default=6, ge=1, le=100)
    minibatches: int = Field(default=8, ge=1, le=1024)
    hidden: list[Annotated[int, Field(ge=1, le=8192)]] = Field(default=[64, 64], min_length=1, max_length=8)


class DqnParameters(Resource):
    """Deep Q-learning (Mnih et al., 2015) with double targets (van Hasselt et al., 2016)."""

    learning_rate: float = Field(default=1e-3, gt=0, le=1)
    discount: float = Field(default=0.99, ge=0, le=1)
    environments: int = Field(default=16, ge=1, le=4096, description="parallel environments over all ranks together")
    batch_size: int = Field(default=256, ge=1, le=65536, description="transitions per update over all ranks together")
    buffer_size: int = Field(default=100_000, ge=1000, le=10_000_000)
    learning_starts: int = Field(default=1000, ge=0)
    steps_per_update: int = Field(default=16, ge=1, le=65536, description="environment steps between updates")
    target_update: int = Field(default=500, ge=1, description="updates between copies to the target network")
    epsilon_start: float = Field(default=1.0, ge=0, le=1)
    epsilon_end: float = Field(default=0.04, ge=0, le=1)
    exploration_fraction: float = Field(default=0.3, gt=0, le=1)
    max_gradient_norm: float = Field(default=10.0, gt=0, le=1000)
    hidden: list[Annotated[int, Field(ge=1, le=8192)]] = Field(default=[120, 84], min_length=1, max_length=8)


class TrainingData(Resource):
    """What the run learns from."""

    environment: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="environment name known to the trainer image, e.g. CartPole-v1"
    )
    learning_agent_ref: LocalRef | None = Field(
        default=None, description="agent whose recorded observations verify the exported policy"
    )


class Checkpointing(Resource):
    """How much work a crash may cost."""

    every_seconds: int = Field(default=5, ge=1, le=3600)


class Evaluation(Resource):
    """Held-out evaluation: episodes on seeds that training never uses."""

    episodes: int = Field(default=100, ge=1, le=10000)


class Gates(Resource):
    """What the evaluation must show before the model may serve anyone."""

    min_return: float | None = Field(default=None, description="held-out mean return at least this")
    min_improvement: float | None = Field(
        default=None, description="held-out mean return at least this much above the baseline policy's"
    )
    significant: bool = Field(
        default=True, description="lower end of the 95 % interval above the baseline's mean return"
    )


class TrainingTemplate(Resource):
    """Everything about a run but its data: what a LearningAgent repeats for each new job."""

    algorithm: Literal["ppo", "dqn"]
    ppo: PpoParameters | None = Field(default=None, description="only with algorithm: ppo")
    dqn: DqnParameters | None = Field(default=None, description="only with algorithm: dqn")
    total_steps: int = Field(ge=1, le=10_000_000_000, description="environment steps of all ranks together")
    seed: int = Field(default=0, ge=0, le=2_147_483_647)
    workers: int = Field(default=0, ge=0, le=1024, description="worker pods beside the one master; ranks = 1 + workers")
    backend: Literal["pytorchjob"] = "pytorchjob"
    checkpoint: Checkpointing = Field(default_factory=Checkpointing)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    gates: Gates = Field(default_factory=Gates)
    max_attempts: int = Field(default=4, ge=1, le=100, description="starts of the whole gang, the first one included")
    stall_seconds: int = Field(default=120, ge=10, le=86400, description="no heartbeat for so long: restart the gang")
    deadline_seconds: int | None = Field(default=None, ge=1, description="give up after this much wall time")
    ttl_seconds_after_finished: int | None = Field(default=None, ge=0, description="delete the pods' job after this")
    pod: PodOptions = Field(default_factory=PodOptions)


class TrainingJobSpec(TrainingTemplate):
    """One run."""

    data: TrainingData
    suspend: bool = False


class ReturnStatus(Resource):
    """Mean episode return with its 95 % interval."""

    episodes: int
    mean: float
    iqm: float
    ci_low: float
    ci_high: float


class GateResult(Resource):
    """One gate's verdict."""

    name: ShortText
    passed: bool
    message: ShortText


class ArtifactStatus(Resource):
    """The exported policy."""

    uri: Uri
    sha256: Digest


class LineageStatus(Resource):
    """Where a model comes from."""

    learning_agent: ObjectName | None = None
    reward_policy: ObjectName | None = None
    reward_policy_revision: ShortText | None = None
    trajectories: int | None = Field(default=None, description="trajectories the agent had when the run began")


class TrainingJobStatus(Status):
    """Progress, proof and the reason."""

    attempts: int | None = None
    step: int | None = None
    total_steps: int | None = None
    progress: ShortText | None = Field(default=None, description="e.g. 42%")
    eta: ShortText | None = Field(default=None, description="e.g. 1m20s")
    steps_per_second: float | None = None
    world_size: int | None = None
    recent_return: ReturnStatus | None = None
    evaluation: ReturnStatus | None = None
    baseline: ReturnStatus | None = None
    return_text: ShortText | None = Field(default=None, alias="return", description="e.g. 487.2 [481.0, 492.1]")
    gates: list[GateResult] | None = Field(default=None, max_length=16)
    artifact: ArtifactStatus | None = None
    py_torch_job: ShortText | None = Field(default=None, alias="pytorchJob")
    started_at: Time | None = None
    attempt_started_at: Time | None = None
    finished_at: Time | None = None
    lineage: LineageStatus | None = None
