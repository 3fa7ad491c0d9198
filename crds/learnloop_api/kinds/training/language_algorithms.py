"""Hyperparameters of the algorithms that train language models."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import Resource, Uri
from learnloop_api.kinds.cel_rules import Rule
from learnloop_api.kinds.training.optimiser import Optimised

LayerName = Annotated[str, Field(min_length=1, max_length=63)]


class Lora(Resource):
    """A low-rank adapter (Hu et al., 2021, arXiv 2106.09685): the base model stays as it is."""

    rank: int = Field(default=8, ge=1, le=512, description="Rank of the adapter.")
    alpha: float = Field(default=16.0, gt=0, le=4096, description="The adapter counts alpha / rank times.")
    layers: Annotated[list[LayerName], Field(min_length=1, max_length=32)] = Field(
        default=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        description="Linear layers that get one, by the last part of their name.",
    )


class LanguageParameters(Optimised):
    """What all algorithms for language models share; totalSteps counts episodes, demonstrations or pairs."""

    language: ClassVar[bool] = True

    learning_rate: float = Field(default=1e-4, gt=0, le=1, description="Step size of AdamW at the start.")
    weight_decay: float = Field(default=0.0, ge=0, le=1, description="Share of the weights AdamW takes per step size.")
    max_gradient_norm: float = Field(default=1.0, gt=0, le=1000, description="Gradients are clipped to this norm.")
    weights: Literal["lora", "full"] = Field(
        default="lora", description="What learns: an adapter beside the frozen base model, or all of its weights."
    )
    lora: Lora = Field(default_factory=Lora)
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="What layers compute in; log-probabilities, losses and the optimiser are float32 either way.",
    )
    sharding: Literal["none", "full"] = Field(
        default="none",
        description="none: each rank has all weights. full: FSDP2 divides weights, gradients and the optimiser's state "
        "among the ranks, for models that do not fit one GPU; needs workers, and is not for reward models.",
    )
    tokens_per_batch: int = Field(
        default=16_384, ge=64, le=16_777_216, description="Tokens, padding included, that go through the model at once."
    )


class RecordedExperience(LanguageParameters):
    """Learns from episodes: of its own rollouts, or of recorded turns.

    Attributes:
        plays: an update is made of whole groups of conversations, which no two ranks share.
    """

    plays: ClassVar[bool] = False

    experience: Literal["rollouts", "recorded", "both"] | None = Field(
        default=None,
        description="rollouts: conversations the run holds itself in data.environment. recorded: turns of recording, "
        "or of data.learningAgentRef. both: the newest recorded ones once, then rollouts. Left out: recorded for sft "
        "and where recording is set, else rollouts.",
    )
    recording: Uri | None = Field(
        default=None,
        description="File with one recorded trajectory as JSON on each line; left out, the newest trajectories of "
        "data.learningAgentRef.",
    )
    max_recorded_turns: int = Field(
        default=100_000, ge=1, le=10_000_000, description="Recorded turns taken at most, the newest of an agent."
    )
    max_staleness: int = Field(
        default=2,
        ge=0,
        le=1000,
        description="Recorded episodes of a policy are left out once more than so many others have spoken since.",
    )
    group_size: int = Field(
        default=8, ge=1, le=1024, description="Conversations about the same task, which are compared with one another."
    )


class SftParameters(RecordedExperience):
    """Supervised fine-tuning: the likelihood of what was said in demonstrations."""

    algorithm: ClassVar[str] = "sft"
    summary: ClassVar[str] = "supervised fine-tuning of a language model on demonstrations"

    learning_rate: float = Field(default=2e-4, gt=0, le=1, description="Step size of AdamW at the start.")
    batch_episodes: int = Field(
        default=32, ge=1, le=65536, description="Demonstrations per update over all ranks together."
    )
    min_reward: float | None = Field(
        default=None, description="Only episodes with at least this reward are demonstrations; left out, all are."
    )


class DpoParameters(RecordedExperience):
    """Direct preference optimisation (Rafailov et al., 2023, arXiv 2305.18290) with a likelihood term."""

    algorithm: ClassVar[str] = "dpo"
    summary: ClassVar[str] = "direct preference optimisation of a language model"

    learning_rate: float = Field(default=5e-5, gt=0, le=1, description="Step size of AdamW at the start.")
    batch_pairs: int = Field(default=32, ge=1, le=65536, description="Pairs per update over all ranks together.")
    beta: float = Field(default=0.1, gt=0, le=100, description="How strongly the base model holds (beta).")
    nll_coefficient: float = Field(
        default=0.2,
        ge=0,
        le=100,
        description="Weight of the chosen answers' negative log-likelihood by token (arXiv 2404.19733): without it "
        "both answers may become unlikely.",
    )
    pairs: Literal["preferences", "episodes"] = Field(
        default="preferences",
        description="preferences: what people preferred; episodes: best and worst conversation about the same task.",
    )
    margin: float = Field(
        default=0.0, ge=0, description="With pairs: episodes, the least difference of reward between the two, above 0."
    )
    rollouts: int = Field(
        default=1024, ge=2, le=1_000_000, description="With pairs: episodes of a world, conversations held for them."
    )


class BradleyTerryParameters(RecordedExperience):
    """A reward model by the law of comparisons (Bradley & Terry, 1952): a number for each answer, from preferences."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.sharding == 'none'", "reward models are not divided: set sharding to none", ".sharding"),
    )
    algorithm: ClassVar[str] = "bradley-terry"
    scores_answers: ClassVar[bool] = True
    summary: ClassVar[str] = "a reward model that scores answers, from people's preferences"

    learning_rate: float = Field(default=1e-4, gt=0, le=1, description="Step size of AdamW at the start.")
    batch_pairs: int = Field(default=32, ge=1, le=65536, description="Pairs per update over all ranks together.")
    held_out_share: float = Field(
        default=0.2,
        ge=0.05,
        le=0.5,
        description="Share of the pairs that is never learned from and says how often the model prefers as people do.",
    )
    score_decay: float = Field(
        default=0.001,
        ge=0,
        le=1,
        description="Weight of the squares of the scores: pairs fix differences only, and this keeps scores near 0.",
    )


class PolicyParameters(RecordedExperience):
    """What the policy-gradient algorithms share."""

    plays: ClassVar[bool] = True

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.batchEpisodes % self.groupSize == 0",
            "batchEpisodes are groups × groupSize: make it a multiple of groupSize",
            ".batchEpisodes",
        ),
        Rule(
            "self.minibatches * self.groupSize <= self.batchEpisodes",
            "an update has batchEpisodes / groupSize groups, fewer than minibatches: lower minibatches or groupSize",
            ".minibatches",
        ),
    )

    batch_episodes: int = Field(
        default=128, ge=1, le=65536, description="Episodes between updates over all ranks together."
    )
    recorded_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="With experience: both, at most this share of totalSteps are recorded episodes: the newest ones, "
        "or the first ones of recording. The rest are rollouts.",
    )
    epochs: int = Field(default=1, ge=1, le=100, description="Passes over these episodes.")
    minibatches: int = Field(default=1, ge=1, le=1024, description="Updates per pass; groups are never divided.")
    ratio_cap: float = Field(
        default=2.0, ge=1, le=100, description="Importance weights of tokens are cut off here (arXiv 1802.01561)."
    )
    sequence_ratio_limit: float = Field(
        default=2.0,
        gt=1,
        le=100,
        description="An episode teaches nothing while the geometric mean of its ratios is above this, or below its "
        "inverse.",
    )
    kl_coefficient: float = Field(
        default=0.01, ge=0, le=100, description="Weight of the divergence from the base model, the adapter off."
    )
    entropy_coefficient: float = Field(default=0.0, ge=0, le=1, description="Weight of the entropy bonus.")


class RlooParameters(PolicyParameters):
    """REINFORCE with the other episodes of the task as baseline (Ahmadian et al., 2024, arXiv 2402.14740)."""

    algorithm: ClassVar[str] = "rloo"
    summary: ClassVar[str] = "REINFORCE of a language model, the task's other conversations as baseline"


class GrpoParameters(PolicyParameters):
    """Group-relative policy optimisation (Shao et al., 2024, arXiv 2402.03300)."""

    algorithm: ClassVar[str] = "grpo"
    summary: ClassVar[str] = "group-relative policy optimisation of a language model"

    clip_low: float = Field(default=0.2, gt=0, lt=1, description="The ratio is clipped below at 1 minus this.")
    clip_high: float = Field(
        default=0.28, gt=0, le=10, description="The ratio is clipped above at 1 plus this (arXiv 2503.14476)."
    )
    scale_by_deviation: bool = Field(
        default=True, description="Divide by the group's deviation; false weighs hard and easy tasks alike."
    )


class PpoLmParameters(PolicyParameters):
    """Proximal policy optimisation over tokens, with a value head on the model (arXiv 1707.06347)."""

    algorithm: ClassVar[str] = "ppo-lm"
    summary: ClassVar[str] = "proximal policy optimisation of a language model, by token"

    group_size: int = Field(
        default=1, ge=1, le=1024, description="Conversations about the same task; the value head is the baseline."
    )
    epochs: int = Field(default=2, ge=1, le=100, description="Passes over these episodes.")
    minibatches: int = Field(default=2, ge=1, le=1024, description="Updates per pass; groups are never divided.")
    clip_low: float = Field(default=0.2, gt=0, lt=1, description="The ratio is clipped below at 1 minus this.")
    clip_high: float = Field(default=0.2, gt=0, le=10, description="The ratio is clipped above at 1 plus this.")
    value_coefficient: float = Field(default=0.1, ge=0, le=100, description="Weight of the value loss.")
    value_clip: float = Field(default=0.2, gt=0, le=1000, description="Values move at most so far per update.")
    discount: float = Field(default=1.0, gt=0, le=1, description="Discount of future rewards by token (gamma).")
    gae_lambda: float = Field(
        default=0.98, ge=0, le=1, description="Lambda of generalised advantage estimation (arXiv 1506.02438)."
    )
