"""Training runs: heartbeats and their figures, checkpoints and proofs."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from learnloop_api.kinds.behaviour import Behaviour
from learnloop_api.kinds.training.evaluation import Dimension
from learnloop_api.wire.base import MOST, Identifier, Name, Real, Sentence, Sha256, Timestamp, WireModel
from learnloop_api.wire.language import LanguageProof, RewardModelProof
from learnloop_api.wire.trajectory import ExperienceRead

FIGURES: Mapping[str, str] = {
    "loss": "Loss of the newest update, where the learner has one that says it all.",
    "policy_loss": "Loss of the policy in the newest update.",
    "value_loss": "Loss of the value function in the newest update.",
    "value": "Mean value estimate in the newest update.",
    "entropy": "Mean entropy of the policy in the newest update, in nats.",
    "kl_divergence": "Mean KL divergence of the newest update's policy from the one that acted, in nats.",
    "gradient_norm": "Norm of the newest gradient before it was clipped.",
    "learning_rate": "Step size of the newest update.",
    "epsilon": "Share of actions that exploration draws at random.",
    "episode_length": "Mean length of the first rank's newest episodes, in steps.",
    "replay_transitions": "Transitions in the first rank's replay buffer.",
    "invalid_actions": "Actions so far that were not allowed: a safety shield replaced them.",
    "multiplier": "Sum of the learned multipliers of the RewardPolicy's constraints.",
    "constraint_excess": "Mean outcome value of the newest episodes above its constraint's limit, the largest of all.",
    "memory_bytes": "Resident memory of the first rank's process.",
    "gpu_memory_bytes": "Memory that the first rank holds on its GPU.",
}
"""Single figures: each is the curve `train/<name>` and the metric `learnloop_training_<name>`."""
RESOURCES: Mapping[str, str] = {
    "cpu_utilization": "cpu",
    "memory_utilization": "memory",
    "gpu_utilization": "gpu",
    "gpu_memory_utilization": "gpu_memory",
}
"""Shares from 0 to 1 of what the first rank may use: each is a series of `resource_utilization`."""
ACTION_SHARE = "action_share_"
"""With the action's number: its share among the newest discrete actions."""
MOST_ACTIONS = 32
LEARNED = ("samples_to_convergence", "convergence")
"""Of the whole curve of returns, as far as it goes."""
LONGEST_NAME = 32
NAME_PATTERN = (
    f"^({'|'.join((*FIGURES, *RESOURCES, *LEARNED))}|{ACTION_SHARE}({'|'.join(map(str, range(MOST_ACTIONS)))}))$"
)
"""The names that `is_figure` accepts, in the words of JSON Schema."""


def is_figure(name: str) -> bool:
    """Is this one of the figures that a heartbeat may carry?"""
    return re.fullmatch(NAME_PATTERN, name) is not None


MOST_FIGURES = 96
MOST_POINTS = 64
"""Of a curve in a heartbeat."""


def _figure(name: str) -> str:
    if not is_figure(name):
        raise ValueError(f"no figure of training: send any of {', '.join(FIGURES)}, or none")
    return name


# The validator says what to send; a pattern would only be quoted. Clients read the pattern in the schema.
FigureName = Annotated[
    str,
    Field(max_length=LONGEST_NAME),
    AfterValidator(_figure),
    WithJsonSchema({"type": "string", "maxLength": LONGEST_NAME, "pattern": NAME_PATTERN}),
]
LEAST_PAIRS = 6
"""Fewer episodes show nothing at 95 %: of equal policies one wins 5 of 5 in 3 % of all cases."""


class ReturnEstimate(WireModel):
    """An estimate of the mean episode return with a 95 % bootstrap confidence interval."""

    episodes: int = Field(ge=0, le=MOST)
    mean: float
    iqm: float = Field(description="interquartile mean (Agarwal et al., 2021, arXiv 2108.13264)")
    ci_low: float
    ci_high: float


class HeldOut(WireModel):
    """The held-out episodes that prove a run: of `seed`, those numbered from `first` to `first + episodes - 1`."""

    seed: int = Field(ge=0, le=MOST)
    first: int = Field(ge=0, le=MOST)
    episodes: int = Field(ge=1, le=MOST, description="of each of the two policies; both play the same ones")
    level: str | None = Field(default=None, max_length=63, description="of difficulty; null: the environment's first")


class Interval(WireModel):
    """A figure with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


class DimensionResult(WireModel):
    """One dimension of the evaluation suite: returns under several conditions, the strata of its bootstrap."""

    dimension: Dimension
    message: Sentence = Field(default="", max_length=1024, description="why it was not measured; empty when it was")
    conditions: list[str] = Field(default_factory=list, max_length=64)
    episodes: int = Field(default=0, ge=0, le=MOST, description="of each of the two policies, all conditions together")
    iqm: Interval | None = Field(default=None, description="interquartile mean return over all conditions")
    baseline: Interval | None = Field(default=None, description="the same of the serving policy")
    improvement: Interval | None = Field(default=None, description="probability of improvement, mean over conditions")
    reference: Interval | None = Field(default=None, description="interquartile mean return of what `compared` says")
    compared: str = Field(default="", max_length=256, description="what the reference is, e.g. before fine-tuning")


class SuiteResult(WireModel):
    """Results of the evaluation suite."""

    improvement: Interval = Field(description="probability of improvement in the held-out evaluation itself")
    overall: float | None = Field(default=None, description="weighted mean of the measured dimensions' improvement")
    results: list[DimensionResult] = Field(max_length=5)
    seconds: float = Field(ge=0)


class RunProgress(WireModel):
    """How far a run is."""

    job: Name
    agent: Name | None = Field(default=None, description="the agent that the run trains; null for a run by hand")
    attempt: int = Field(ge=0, le=1_000_000, description="incarnation of the whole gang, counted from 0")
    step: int = Field(ge=0, le=MOST, description="environment steps done by all ranks together")
    total_steps: int = Field(ge=1, le=MOST)
    world_size: int = Field(ge=1, le=1_000_000)
    steps_per_second: float = Field(ge=0)
    eta_seconds: float | None = Field(default=None, ge=0)
    recent_return: ReturnEstimate | None = None
    figures: dict[FigureName, float] = Field(
        default_factory=dict,
        max_length=MOST_FIGURES,
        json_schema_extra={"additionalProperties": False},
        description="what the learner and its process tell of themselves: loss, entropy, kl_divergence, gradient_norm, "
        "cpu_utilization and others; those that do not apply are left out",
    )
    returns: list[Real] = Field(
        default_factory=list,
        max_length=200,
        description="of the first rank's newest episodes, oldest first, since the difficulty last changed; anomalies "
        "are looked for in them",
    )
    message: Sentence = Field(
        default="", max_length=1024, description="one sentence for a human; names the fix when failed"
    )
    at: Timestamp


class CurvePoint(WireModel):
    """Mean return of the newest training episodes at a step."""

    step: int = Field(ge=0, le=MOST)
    mean: Real
    low: Real = Field(description="of its 95 % interval")
    high: Real


class Heartbeat(RunProgress):
    """Sent by rank 0 about once a second; the operator reads the newest."""

    phase: Literal["starting", "training", "evaluating", "exporting", "done", "failed"]
    curve: list[CurvePoint] = Field(
        default_factory=list, max_length=MOST_POINTS, description="of all attempts since step 0, thinned"
    )


class Parity(WireModel):
    """The exported graph against the trained network on recorded observations."""

    observations: int = Field(ge=1, le=MOST)
    recorded: int = Field(
        ge=0, le=MOST, description="how many of them an agent really saw; the rest come from evaluation"
    )
    max_abs_difference: float = Field(ge=0, description="largest absolute difference of any output")
    action_agreement: float = Field(ge=0, le=1)
    passed: bool


class ExportedFormat(WireModel):
    """The policy in a further format, as faithful as the artifact itself.

    Of a language model: peft-config is adapter_config.json, which is stored next to the artifact as
    adapter_model.safetensors; gguf-lora is the adapter as llama.cpp reads it.
    """

    format: Literal["torchscript", "peft-config", "gguf-lora"]
    uri: str = Field(max_length=2048)
    sha256: Sha256
    size_bytes: int = Field(ge=1, le=MOST)
    parity: Parity


class OffPolicy(WireModel):
    """The proof of a run without an environment: what its policy would earn, judged by logged episodes alone.

    Returns are discounted. Weighted doubly robust (arXiv 1511.03722, 1604.00923) on a fitted Q (arXiv 1903.08738).
    """

    discount: float = Field(ge=0, le=1)
    episodes: int = Field(ge=0, le=MOST, description="whole logged ones that nothing was learned from")
    verdict: bool = Field(
        description="whether the interval may be believed and says something; without, no gate passes"
    )
    message: Sentence = Field(default="", max_length=1024, description="why a verdict is missing")
    model: float | None = Field(default=None, description="the model's own word, corrected by nothing")
    corrected_steps: int = Field(default=0, ge=0, le=MOST, description="steps of an episode that weights correct")
    longest: int = Field(default=0, ge=0, le=MOST, description="steps of the longest episode")
    effective_episodes: float = Field(default=0.0, ge=0, description="that the weights speak for, at the least")
    by_model: float = Field(default=0.0, ge=0, description="half of the interval that the uncorrected steps cost")


class ValidationPoint(WireModel):
    """One evaluation along training."""

    step: int = Field(ge=0, le=MOST)
    mean: float = Field(description="return of the episodes, which are the same at every step")


class ValidationReport(WireModel):
    """Results of an evaluation during training."""

    episodes: int = Field(ge=1, le=MOST, description="of each evaluation; neither training nor the proof plays them")
    points: list[ValidationPoint] = Field(max_length=1000, description="the newest")
    best_step: int | None = Field(default=None, ge=0, le=MOST)
    exported: Literal["best", "last"]
    ended_early: bool = Field(default=False, description="patience ended the run before totalSteps")


class Cost(WireModel):
    """An outcome value's mean over held-out episodes, or that of the shield's interventions."""

    name: str = Field(max_length=63, description="of the RewardPolicy's constraint, or interventions")
    maximum: float | None = Field(default=None, description="the constraint's; null of interventions: no limit")
    episodes: int = Field(ge=1, le=MOST)
    mean: float
    ci_low: float
    ci_high: float
    baseline: float = Field(description="mean of the policy compared with")


class UpdateOrder(WireModel):
    """PUT /api/v1/training/runs/{job}/update: the next update of a rank that stays. The first of a number stands."""

    number: int = Field(ge=1, le=1_000_000)
    goes_on: bool = Field(description="from the state after the last update; else from the policy that serves")
    baseline_uri: str | None = Field(default=None, max_length=2048, description="the policy that serves")
    baseline_sha256: Sha256 | None = None
    reward_policy: Name | None = Field(default=None, description="where the run learns by its rewards")
    reward_policy_revision: str | None = Field(default=None, max_length=64)


class Proof(WireModel):
    """A finished run: its artifact, and what was measured of it. Without it pods that succeeded count for nothing."""

    job: Name
    agent: Name | None = None
    algorithm: Identifier
    environment: str = Field(max_length=2048, description="without one, the spaces: what is seen and done")
    seed: int = Field(ge=-MOST, le=MOST)
    step: int = Field(ge=0, le=MOST)
    total_steps: int = Field(ge=1, le=MOST)
    world_size: int = Field(ge=1, le=1_000_000)
    attempts: int = Field(ge=1, le=1_000_000)
    recipe_sha256: Sha256 | None = Field(
        default=None, description="of all that was asked of the run: algorithm, hyperparameters, data, evaluation"
    )
    update: int = Field(default=0, ge=0, le=MOST, description="of a rank that stays; 0: the run itself")
    kl: float | None = Field(
        default=None, ge=0, description="mean KL divergence of an update from the policy that serves, where both draw"
    )
    ended_by_kl: bool = Field(
        default=False, description="the bound on its KL divergence ended the update before its steps were done"
    )
    artifact_uri: str = Field(max_length=2048)
    artifact_sha256: Sha256
    artifact_bytes: int = Field(ge=1, le=MOST)
    checkpoint_sha256: Sha256
    baseline: ReturnEstimate = Field(description="the serving (or uniform random) policy on the same held-out seeds")
    evaluation: ReturnEstimate = Field(description="the exported policy on held-out seeds, disjoint from training's")
    difference: Interval | None = Field(
        default=None,
        description="evaluation's mean less baseline's, paired by episode, with its 95 % interval, from 6 episodes on",
    )
    held_out: HeldOut | None = Field(default=None, description="which episodes both of them played")
    costs: list[Cost] = Field(
        default_factory=list,
        max_length=17,
        description="what those episodes cost: the constraints of learned multipliers, and the shield's interventions",
    )
    off_policy: OffPolicy | None = Field(
        default=None,
        description="without an environment: evaluation, baseline and difference are then estimates of this, the "
        "baseline is what was logged, and without a verdict their episodes are 0",
    )
    begun_from: str | None = Field(
        default=None, max_length=2560, description="the policy whose weights it began with, or why with random ones"
    )
    rewards: Literal["environment", "policy"] = Field(
        default="environment", description="which rewards it learned by; returns are the environment's either way"
    )
    reward_policy: Name | None = Field(default=None, description="whose rewards, where they were a RewardPolicy's")
    reward_policy_revision: str | None = Field(default=None, max_length=64, description="the one in force as it began")
    experience: ExperienceRead | None = Field(
        default=None, description="what the run read of an agent's log; null: it read none"
    )
    baseline_uri: str | None = Field(default=None, max_length=2048, description="the policy compared with")
    baseline_sha256: Sha256 | None = Field(default=None, description="its digest; null for uniform random actions")
    behaviour: Behaviour | None = Field(
        default=None, description="how the exported policy acts, in the evaluation as where it is served"
    )
    greedy: ReturnEstimate | None = Field(
        default=None, description="its greedy actions on the same episodes, where it does not act so anyway"
    )
    parity: Parity
    validation: ReturnEstimate | None = Field(
        default=None, description="the exported policy on further held-out seeds, where a study chooses by it"
    )
    while_training: ValidationReport | None = Field(
        default=None, description="where spec.evaluation.whileTraining asked for it"
    )
    suite: SuiteResult | None = Field(default=None, description="where spec.evaluation.suite asked for it")
    exports: list[ExportedFormat] = Field(
        default_factory=list, max_length=8, description="further formats, where asked for"
    )
    language: LanguageProof | None = Field(default=None, description="where a language model was trained")
    reward_model: RewardModelProof | None = Field(
        default=None, description="where a reward model was: returns are then 1 for each pair it orders as people did"
    )
    actions: int | None = Field(
        default=None, ge=0, le=MOST, description="taken in training under a safety shield; null without one"
    )
    interventions: int | None = Field(default=None, ge=0, le=MOST, description="how many of them the shield replaced")
    audit_uri: str | None = Field(
        default=None, max_length=2048, description="rank 0's audit record of them, JSON lines"
    )
    wall_seconds: float = Field(ge=0)
    engine: Literal["own", "sb3", "trl", "image"] = Field(default="own", description="the program that trained")
    versions: dict[str, str] = Field(default_factory=dict, max_length=64)
    created_at: Timestamp


class CheckpointInfo(WireModel):
    """Pointer to the newest durable checkpoint of a run."""

    step: int = Field(ge=0, le=MOST)
    sha256: Sha256
    size_bytes: int = Field(ge=1, le=MOST)
    at: Timestamp


class TrainingRun(WireModel):
    """GET /api/v1/training/runs/{job}: all the data plane knows of one run."""

    job: Name
    heartbeat: Heartbeat | None = None
    heartbeat_age_seconds: float | None = Field(default=None, ge=0, description="by the data plane's own clock")
    checkpoint: CheckpointInfo | None = None
    proof: Proof | None = None
    update: UpdateOrder | None = Field(default=None, description="newest one ordered of a rank that stays")
