"""TrainingJob: one training run, from a PyTorchJob to a proven artifact."""

from typing import Annotated, ClassVar, Literal

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
from learnloop_api.kinds.rules import Rule, immutable

Layers = list[Annotated[int, Field(ge=1, le=8192)]]


class PpoParameters(Resource):
    """Proximal policy optimisation (Schulman et al., 2017, arXiv 1707.06347)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.minibatches <= self.environments * self.horizon",
            "an update has environments × horizon steps, fewer than minibatches: lower minibatches or raise those",
            ".minibatches",
        ),
    )

    learning_rate: float = Field(default=2.5e-3, gt=0, le=1, description="Step size of Adam at the start.")
    discount: float = Field(default=0.99, ge=0, le=1, description="Discount of future rewards (gamma).")
    gae_lambda: float = Field(
        default=0.95, ge=0, le=1, description="Lambda of generalised advantage estimation (arXiv 1506.02438)."
    )
    clip: float = Field(default=0.2, gt=0, le=1, description="Clip range of the probability ratio (epsilon).")
    entropy_coefficient: float = Field(default=0.01, ge=0, le=1, description="Weight of the entropy bonus.")
    value_coefficient: float = Field(default=0.5, ge=0, le=10, description="Weight of the value loss.")
    max_gradient_norm: float = Field(default=0.5, gt=0, le=100, description="Gradients are clipped to this norm.")
    environments: int = Field(
        default=64, ge=1, le=4096, description="Parallel environments over all ranks together; at least one per rank."
    )
    horizon: int = Field(default=32, ge=1, le=65536, description="Steps of each environment between updates.")
    epochs: int = Field(default=6, ge=1, le=100, description="Passes over the collected steps per update.")
    minibatches: int = Field(
        default=8, ge=1, le=1024, description="Parts the steps of an update are divided into per pass."
    )
    hidden: Layers = Field(
        default=[64, 64], min_length=1, max_length=8, description="Widths of the hidden layers, input side first."
    )


class DqnParameters(Resource):
    """Deep Q-learning (Mnih et al., 2015) with double targets (van Hasselt et al., 2016)."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.epsilonEnd <= self.epsilonStart",
            "epsilonEnd must not be above epsilonStart: exploration only falls",
            ".epsilonEnd",
        ),
        Rule("self.batchSize <= self.bufferSize", "batchSize must not be above bufferSize", ".batchSize"),
        Rule(
            "self.learningStarts <= self.bufferSize", "learningStarts must not be above bufferSize", ".learningStarts"
        ),
    )

    learning_rate: float = Field(default=2.3e-3, gt=0, le=1, description="Step size of Adam.")
    discount: float = Field(default=0.99, ge=0, le=1, description="Discount of future rewards (gamma).")
    environments: int = Field(
        default=16, ge=1, le=4096, description="Parallel environments over all ranks together; at least one per rank."
    )
    batch_size: int = Field(default=64, ge=1, le=65536, description="Transitions per update over all ranks together.")
    buffer_size: int = Field(
        default=100_000, ge=1000, le=10_000_000, description="Transitions kept for replay over all ranks together."
    )
    learning_starts: int = Field(
        default=1000, ge=0, le=10_000_000, description="Environment steps before the first update."
    )
    steps_per_update: int = Field(default=8, ge=1, le=65536, description="Environment steps between updates.")
    target_update: int = Field(
        default=64, ge=1, le=1_000_000, description="Updates between copies to the target network."
    )
    epsilon_start: float = Field(default=1.0, ge=0, le=1, description="Share of random actions at the start.")
    epsilon_end: float = Field(
        default=0.04, ge=0, le=1, description="Share of random actions once exploration is over."
    )
    exploration_fraction: float = Field(
        default=0.16, gt=0, le=1, description="Share of totalSteps over which the share of random actions falls."
    )
    max_gradient_norm: float = Field(default=10.0, gt=0, le=1000, description="Gradients are clipped to this norm.")
    n_step: int = Field(
        default=1, ge=1, le=64, description="Rewards summed before the value of what follows is estimated."
    )
    prioritized: bool = Field(
        default=False, description="Replay transitions in proportion to their last error (arXiv 1511.05952)."
    )
    priority_exponent: float = Field(
        default=0.6, ge=0, le=1, description="With prioritized: 0 samples uniformly, 1 in proportion to the error."
    )
    importance_start: float = Field(
        default=0.4, ge=0, le=1, description="With prioritized: importance correction at the start; it rises to 1."
    )
    hidden: Layers = Field(
        default=[120, 84], min_length=1, max_length=8, description="Widths of the hidden layers, input side first."
    )


class SacParameters(Resource):
    """Soft actor-critic with a learned temperature (Haarnoja et al., 2018, arXiv 1812.05905): continuous actions."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.batchSize <= self.bufferSize", "batchSize must not be above bufferSize", ".batchSize"),
        Rule(
            "self.learningStarts <= self.bufferSize", "learningStarts must not be above bufferSize", ".learningStarts"
        ),
    )

    learning_rate: float = Field(default=1e-3, gt=0, le=1, description="Step size of Adam, for all networks.")
    discount: float = Field(default=0.99, ge=0, le=1, description="Discount of future rewards (gamma).")
    environments: int = Field(
        default=1, ge=1, le=4096, description="Parallel environments over all ranks together; at least one per rank."
    )
    batch_size: int = Field(default=256, ge=1, le=65536, description="Transitions per update over all ranks together.")
    buffer_size: int = Field(
        default=100_000, ge=1000, le=10_000_000, description="Transitions kept for replay over all ranks together."
    )
    learning_starts: int = Field(
        default=1000, ge=1, le=10_000_000, description="Environment steps with random actions before the first update."
    )
    steps_per_update: int = Field(default=1, ge=1, le=65536, description="Environment steps between updates.")
    target_rate: float = Field(
        default=0.005, gt=0, le=1, description="Share of the critics that goes to their targets per update (tau)."
    )
    initial_temperature: float = Field(
        default=1.0, gt=0, le=1000, description="Weight of the entropy at the start (alpha); learned from there."
    )
    target_entropy_scale: float = Field(
        default=1.0, ge=0, le=100, description="The entropy wanted is minus this for each number in an action."
    )
    hidden: Layers = Field(
        default=[256, 256], min_length=1, max_length=8, description="Widths of the hidden layers, input side first."
    )


class TrainingData(Resource):
    """What the run learns from."""

    environment: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="Environment name known to the trainer image, e.g. CartPole-v1."
    )
    learning_agent_ref: LocalRef | None = Field(
        default=None, description="Agent whose recorded observations verify the exported policy."
    )


class Checkpointing(Resource):
    """How much work a crash may cost."""

    every_seconds: int = Field(default=5, ge=1, le=3600, description="Seconds between two durable checkpoints.")


class Evaluation(Resource):
    """Held-out evaluation: episodes on seeds that training never uses."""

    episodes: int = Field(default=100, ge=1, le=10000, description="Episodes for each of the two policies compared.")


class Gates(Resource):
    """What the evaluation must show before the model may serve anyone."""

    min_return: float | None = Field(default=None, description="Held-out mean return at least this.")
    min_improvement: float | None = Field(
        default=None, description="Held-out mean return at least this much above the baseline policy's."
    )
    significant: bool = Field(
        default=True, description="Lower end of the 95 % interval above the baseline's mean return."
    )


def _only_with(algorithm: str) -> Rule:
    return Rule(
        f"!has(self.{algorithm}) || self.algorithm == '{algorithm}'",
        f"{algorithm} goes with algorithm: {algorithm} only: remove it, or change algorithm",
        f".{algorithm}",
    )


def _enough_environments(algorithm: str, parameters: type[PpoParameters | DqnParameters | SacParameters]) -> Rule:
    default = parameters.model_fields["environments"].default
    return Rule(
        f"self.algorithm != '{algorithm}'"
        f" || (has(self.{algorithm}) ? self.{algorithm}.environments : {default}) > self.workers",
        f"every rank steps environments of its own: {algorithm}.environments (left out: {default}) must be at least "
        "1 + workers; raise it, or lower workers",
        ".workers",
    )


class TrainingTemplate(Resource):
    """Everything about a run but its data: what a LearningAgent repeats for each new job."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        _only_with("ppo"),
        _only_with("dqn"),
        _only_with("sac"),
        _enough_environments("ppo", PpoParameters),
        _enough_environments("dqn", DqnParameters),
        _enough_environments("sac", SacParameters),
    )

    algorithm: Literal["ppo", "dqn", "sac"] = Field(
        description="ppo: proximal policy optimisation; dqn: deep Q-learning with double targets; sac: soft "
        "actor-critic, for continuous actions."
    )
    ppo: PpoParameters | None = Field(
        default=None, description="Hyperparameters, only with algorithm: ppo; left out, the defaults."
    )
    dqn: DqnParameters | None = Field(
        default=None, description="Hyperparameters, only with algorithm: dqn; left out, the defaults."
    )
    sac: SacParameters | None = Field(
        default=None, description="Hyperparameters, only with algorithm: sac; left out, the defaults."
    )
    total_steps: int = Field(ge=1, le=10_000_000_000, description="Environment steps of all ranks together.")
    seed: int = Field(default=0, ge=0, le=2_147_483_647, description="Seed of everything random in the run.")
    workers: int = Field(
        default=0, ge=0, le=1024, description="Worker pods beside the one master; ranks = 1 + workers."
    )
    backend: Literal["pytorchjob"] = Field(
        default="pytorchjob", description="What runs the ranks. pytorchjob: the Kubeflow training operator."
    )
    checkpoint: Checkpointing = Field(default_factory=Checkpointing)
    evaluation: Evaluation = Field(default_factory=Evaluation)
    gates: Gates = Field(default_factory=Gates)
    max_attempts: int = Field(default=4, ge=1, le=100, description="Starts of the whole gang, the first one included.")
    stall_seconds: int = Field(default=120, ge=10, le=86400, description="No heartbeat for so long: restart the gang.")
    deadline_seconds: int | None = Field(
        default=None, ge=1, le=31_536_000, description="Give up after this much wall time; left out, never."
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None, ge=0, le=31_536_000, description="Delete the PyTorchJob and its pods this long after the end."
    )
    pod: PodOptions = Field(default_factory=PodOptions, description="The ranks' pods; here GPUs are asked for.")


# Field of TrainingJobSpec that never changes → whether it may be left out.
FROZEN = (
    ("algorithm", False),
    ("ppo", True),
    ("dqn", True),
    ("sac", True),
    ("totalSteps", False),
    ("seed", False),
    ("workers", False),
    ("backend", False),
    ("checkpoint", False),
    ("evaluation", False),
    ("gates", False),
    ("maxAttempts", False),
    ("stallSeconds", False),
    ("deadlineSeconds", True),
    ("pod", False),
    ("data", False),
)


class TrainingJobSpec(TrainingTemplate):
    """One run. Everything but suspend and ttlSecondsAfterFinished is immutable: a result belongs to one recipe."""

    cel_rules: ClassVar[tuple[Rule, ...]] = tuple(
        immutable(field, "create a new TrainingJob", optional=optional) for field, optional in FROZEN
    )

    data: TrainingData
    suspend: bool = Field(
        default=False, description="Stops the pods and keeps the newest checkpoint; false resumes from it."
    )


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


class LineageStatus(Resource):
    """Where a model comes from."""

    learning_agent: ObjectName | None = Field(default=None, description="The LearningAgent the run was made for.")
    reward_policy: ObjectName | None = Field(default=None, description="Its RewardPolicy.")
    reward_policy_revision: ShortText | None = Field(
        default=None, description="Revision of the RewardPolicy when the run began."
    )
    trajectories: int | None = Field(default=None, ge=0, description="Trajectories the agent had when the run began.")


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
    gates: list[GateResult] | None = Field(default=None, max_length=16, description="The verdict of every gate.")
    artifact: ArtifactStatus | None = None
    py_torch_job: ShortText | None = Field(
        default=None, alias="pytorchJob", description="Name of the PyTorchJob that runs the ranks."
    )
    started_at: Time | None = Field(default=None, description="When the first attempt began.")
    attempt_started_at: Time | None = Field(default=None, description="When the current attempt began.")
    finished_at: Time | None = Field(default=None, description="When the run ended, either way.")
    lineage: LineageStatus | None = None
