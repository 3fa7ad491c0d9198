"""Hyperparameters of the algorithms that train teams of agents."""

from typing import Annotated, ClassVar

from pydantic import Field

from learnloop_api.kinds.cel_rules import Rule
from learnloop_api.kinds.training.optimiser import Optimised

Layers = list[Annotated[int, Field(ge=1, le=8192)]]


class TeamParameters(Optimised):
    """What all replaying team algorithms share."""

    team: ClassVar[bool] = True

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule("self.batchSize <= self.bufferSize", "batchSize must not be above bufferSize", ".batchSize"),
        Rule(
            "self.learningStarts <= self.bufferSize", "learningStarts must not be above bufferSize", ".learningStarts"
        ),
    )

    learning_rate: float = Field(default=1e-3, gt=0, le=1, description="Step size of Adam at the start.")
    discount: float = Field(default=0.99, ge=0, le=1, description="Discount of future rewards (gamma).")
    environments: int = Field(
        default=16, ge=1, le=4096, description="Teams side by side over all ranks together; at least one per rank."
    )
    batch_size: int = Field(default=128, ge=1, le=65536, description="Joint transitions per update over all ranks.")
    buffer_size: int = Field(
        default=50_000, ge=1000, le=10_000_000, description="Joint transitions kept for replay over all ranks together."
    )
    learning_starts: int = Field(
        default=1000, ge=0, le=10_000_000, description="Environment steps before the first update."
    )
    steps_per_update: int = Field(default=16, ge=1, le=65536, description="Environment steps between updates.")
    max_gradient_norm: float = Field(default=10.0, gt=0, le=1000, description="Gradients are clipped to this norm.")
    hidden: Layers = Field(
        default=[64, 64], min_length=1, max_length=8, description="Widths of the hidden layers, input side first."
    )


class IndependentDqnParameters(TeamParameters):
    """Independent deep Q-learning (Tan, 1993): each agent takes the others for part of the world."""

    algorithm: ClassVar[str] = "independent-dqn"
    acts: ClassVar[tuple[str, ...]] = ("discrete",)
    summary: ClassVar[str] = "each agent of a team learns for itself"
    values_actions: ClassVar[bool] = True
    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.epsilonEnd <= self.epsilonStart",
            "epsilonEnd must not be above epsilonStart: exploration only falls",
            ".epsilonEnd",
        ),
    )

    target_update: int = Field(
        default=100, ge=1, le=1_000_000, description="Updates between copies to the target network."
    )
    epsilon_start: float = Field(default=1.0, ge=0, le=1, description="Share of random actions at the start.")
    epsilon_end: float = Field(
        default=0.05, ge=0, le=1, description="Share of random actions once exploration is over."
    )
    exploration_fraction: float = Field(
        default=0.5, gt=0, le=1, description="Share of totalSteps over which the share of random actions falls."
    )


class QmixParameters(IndependentDqnParameters):
    """QMIX (Rashid et al., 2018, arXiv 1803.11485): one value for the team, monotonic in the value of each agent."""

    algorithm: ClassVar[str] = "qmix"
    summary: ClassVar[str] = "one monotonic value for a team"
    values_actions: ClassVar[bool] = True

    embedding: int = Field(default=32, ge=1, le=1024, description="Width of the mixing network.")


class MaddpgParameters(TeamParameters):
    """MADDPG (Lowe et al., 2017, arXiv 1706.02275): critics that see everything, actors that see their own part."""

    algorithm: ClassVar[str] = "maddpg"
    acts: ClassVar[tuple[str, ...]] = ("continuous", "hybrid")
    summary: ClassVar[str] = "central critics for a team, for continuous actions"

    actor_learning_rate: float = Field(default=5e-4, gt=0, le=1, description="Step size of Adam for the actor.")
    target_rate: float = Field(
        default=0.01, gt=0, le=1, description="Share of the networks that goes to their targets per update (tau)."
    )
    noise_start: float = Field(
        default=0.4, ge=0, le=10, description="Deviation of the noise on actions (scaled to [-1, 1]) at the start."
    )
    noise_end: float = Field(default=0.05, ge=0, le=10, description="The same at the end; it falls linearly.")
    centralized: bool = Field(
        default=True,
        description="Critics see all observations and actions; false: only the agent's own (independent DDPG).",
    )
