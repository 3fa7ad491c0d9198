"""Hyperparameters: one block of a TrainingJob for each algorithm of a single agent, and the table of all of them."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.cel_rules import Rule
from learnloop_api.kinds.training.hierarchical_and_meta_algorithms import (
    Curiosity,
    HierarchicalDqnParameters,
    MamlParameters,
    VtraceParameters,
)
from learnloop_api.kinds.training.language_algorithms import (
    BradleyTerryParameters,
    DpoParameters,
    GrpoParameters,
    PpoLmParameters,
    RlooParameters,
    SftParameters,
)
from learnloop_api.kinds.training.offline_algorithms import (
    CqlParameters,
    CqlSacParameters,
    FromLog,
    IqlOfflineParameters,
)
from learnloop_api.kinds.training.optimiser import Optimised, RemembersLog
from learnloop_api.kinds.training.team_algorithms import (
    IndependentDqnParameters,
    Layers,
    MaddpgParameters,
    QmixParameters,
)


class PpoParameters(Optimised):
    """Proximal policy optimisation (Schulman et al., 2017, arXiv 1707.06347)."""

    algorithm: ClassVar[str] = "ppo"
    acts: ClassVar[tuple[str, ...]] = ("discrete", "continuous", "hybrid")
    summary: ClassVar[str] = "proximal policy optimisation"
    sampled: ClassVar[bool] = True
    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.minibatches <= self.environments * self.horizon",
            "an update has environments × horizon steps, fewer than minibatches: lower minibatches or raise those",
            ".minibatches",
        ),
        Rule(
            "!has(self.clipEnd) || self.clipEnd <= self.clip",
            "clipEnd must not be above clip: the range only narrows",
            ".clipEnd",
        ),
    )

    learning_rate: float = Field(default=2.5e-3, gt=0, le=1, description="Step size of Adam at the start.")
    discount: float = Field(default=0.99, ge=0, le=1, description="Discount of future rewards (gamma).")
    gae_lambda: float = Field(
        default=0.95, ge=0, le=1, description="Lambda of generalised advantage estimation (arXiv 1506.02438)."
    )
    clip: float = Field(default=0.2, gt=0, le=1, description="Clip range of the probability ratio (epsilon).")
    clip_end: float | None = Field(
        default=None, gt=0, le=1, description="The clip range narrows along a line to this; left out, it stays."
    )
    dual_clip: float | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Where the advantage is negative, the objective is not below this times it (arXiv 1912.09729); "
        "left out, no such limit.",
    )
    entropy_coefficient: float = Field(default=0.01, ge=0, le=1, description="Weight of the entropy bonus.")
    value_coefficient: float = Field(default=0.5, ge=0, le=10, description="Weight of the value loss.")
    max_gradient_norm: float = Field(default=0.5, gt=0, le=100, description="Gradients are clipped to this norm.")
    normalise_observations: bool = Field(
        default=False,
        description="Networks see observations less their running mean, in units of their running deviation; both are "
        "part of the exported policy.",
    )
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


class DqnParameters(RemembersLog, Optimised):
    """Deep Q-learning (Mnih et al., 2015) with double targets (van Hasselt et al., 2016)."""

    algorithm: ClassVar[str] = "dqn"
    acts: ClassVar[tuple[str, ...]] = ("discrete",)
    summary: ClassVar[str] = "deep Q-learning with double targets"
    sampled: ClassVar[bool] = True
    values_actions: ClassVar[bool] = True
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
        Rule(
            "!has(self.curiosity) || self.nStep == 1",
            "curiosity predicts single steps: set nStep to 1, or remove curiosity",
            ".nStep",
        ),
    )

    learning_rate: float = Field(default=2.3e-3, gt=0, le=1, description="Step size of Adam at the start.")
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
    curiosity: Curiosity | None = Field(
        default=None, description="Adds an intrinsic reward for what could not be predicted; left out, none."
    )
    hidden: Layers = Field(
        default=[120, 84], min_length=1, max_length=8, description="Widths of the hidden layers, input side first."
    )


class SacParameters(RemembersLog, Optimised):
    """Soft actor-critic with a learned temperature (Haarnoja et al., 2018, arXiv 1812.05905): continuous actions."""

    algorithm: ClassVar[str] = "sac"
    acts: ClassVar[tuple[str, ...]] = ("continuous",)
    summary: ClassVar[str] = "soft actor-critic, for continuous actions"
    sampled: ClassVar[bool] = True
    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.batchSize <= self.bufferSize", "batchSize must not be above bufferSize", ".batchSize"),
        Rule(
            "self.learningStarts <= self.bufferSize", "learningStarts must not be above bufferSize", ".learningStarts"
        ),
    )

    learning_rate: float = Field(default=1e-3, gt=0, le=1, description="Step size of Adam, for all networks.")
    learning_rate_schedule: Literal["linear", "cosine", "constant"] = Field(
        default="constant", description="How the step size falls to 0 over totalSteps; constant: it does not."
    )
    max_gradient_norm: float | None = Field(
        default=None, gt=0, le=1000, description="Gradients of each network are clipped to this norm; left out, not."
    )
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


class BcParameters(FromLog):
    """Behaviour cloning: supervised learning of what a recorded agent did; totalSteps counts steps learned from."""

    algorithm: ClassVar[str] = "bc"
    summary: ClassVar[str] = "behaviour cloning from recorded experience"
    acts: ClassVar[tuple[str, ...]] = ("discrete", "continuous")

    batch_size: int = Field(
        default=256, ge=1, le=65536, description="Recorded steps per update over all ranks together."
    )


Parameters = Optimised
"""The hyperparameters of any algorithm."""


def _table(*all_parameters: type[Parameters]) -> Mapping[str, type[Parameters]]:
    found = {parameters.algorithm: parameters for parameters in all_parameters}
    assert len(found) == len(all_parameters), "two algorithms have the same name"
    return found


ALGORITHMS = _table(
    PpoParameters,
    DqnParameters,
    SacParameters,
    BcParameters,
    IndependentDqnParameters,
    QmixParameters,
    MaddpgParameters,
    HierarchicalDqnParameters,
    VtraceParameters,
    MamlParameters,
    CqlParameters,
    CqlSacParameters,
    IqlOfflineParameters,
    SftParameters,
    DpoParameters,
    RlooParameters,
    GrpoParameters,
    PpoLmParameters,
    BradleyTerryParameters,
)
"""By the name in spec.algorithm. All that the contract has of an algorithm follows from its line here: the values of
spec.algorithm, its block in a TrainingJob, their descriptions and rules. The trainer's registry must have the same."""

LANGUAGE = tuple(name for name, parameters in ALGORITHMS.items() if parameters.language)
"""Those that train language models; the others train policies of numbers."""


REWARD_MODELS = tuple(name for name, parameters in ALGORITHMS.items() if parameters.scores_answers)
"""Those whose models score answers and give none: nothing that an agent could serve."""


FROM_LOG = tuple(name for name, parameters in ALGORITHMS.items() if parameters.from_log)
"""Those that take no step in an environment: they learn where there is none."""

READS_LOG = tuple(
    name
    for name, parameters in ALGORITHMS.items()
    if parameters.from_log or parameters.language or issubclass(parameters, RemembersLog)
)
"""Those that can learn from what an agent has logged, alone or beside their own steps."""

SAMPLED = tuple(name for name, parameters in ALGORITHMS.items() if parameters.sampled)
"""Those for which spec.samplers play."""


def block(algorithm: str) -> str:
    """The Python attribute with an algorithm's hyperparameters, e.g. independent_dqn."""
    return algorithm.replace("-", "_")
