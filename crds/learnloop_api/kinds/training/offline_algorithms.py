"""Hyperparameters of learners that improve on logged experience without a step in an environment."""

from typing import Annotated, ClassVar

from pydantic import Field

from learnloop_api.kinds.base import Uri
from learnloop_api.kinds.training.optimiser import Optimised
from learnloop_api.kinds.training.team_algorithms import Layers


class FromLog(Optimised):
    """What learners share that take no step in an environment; totalSteps counts the logged steps learned from.

    Attributes:
        spreads: it learns how far numbers may stray, so its policy can draw them, and a log can judge them.
    """

    from_log: ClassVar[bool] = True
    acts: ClassVar[tuple[str, ...]] = ("discrete", "continuous", "hybrid")
    spreads: ClassVar[bool] = False

    recording: Uri | None = Field(
        default=None,
        description="File with one recorded trajectory as JSON on each line; left out, the newest trajectories of "
        "data.learningAgentRef.",
    )
    max_recorded_steps: int = Field(
        default=100_000, ge=1, le=10_000_000, description="Recorded steps taken at most, the newest of an agent."
    )
    learning_rate: float = Field(default=1e-3, gt=0, le=1, description="Step size of Adam at the start.")
    environments: int = Field(
        default=1, ge=1, le=4096, description="Only bounds the ranks: at least one per rank; nothing is played."
    )
    max_gradient_norm: float = Field(default=10.0, gt=0, le=1000, description="Gradients are clipped to this norm.")
    hidden: Annotated[Layers, Field(min_length=1, max_length=8)] = Field(
        default=[64, 64], description="Widths of the hidden layers, input side first."
    )


class Offline(FromLog):
    """What learners of transitions from a log share."""

    discount: float = Field(default=0.99, ge=0, le=1, description="Discount of future rewards (gamma).")
    batch_size: int = Field(
        default=256, ge=1, le=65536, description="Recorded steps per update over all ranks together."
    )
    target_rate: float = Field(
        default=0.005, gt=0, le=1, description="Share of the critics that goes to their targets per update (tau)."
    )
    hidden: Annotated[Layers, Field(min_length=1, max_length=8)] = Field(
        default=[128, 128], description="Widths of the hidden layers, input side first."
    )


class CqlParameters(Offline):
    """Conservative Q-learning (Kumar et al., 2020, arXiv 2006.04779): values of actions nobody took are held down."""

    algorithm: ClassVar[str] = "cql"
    summary: ClassVar[str] = "conservative Q-learning from recorded experience alone"
    values_actions: ClassVar[bool] = True
    acts: ClassVar[tuple[str, ...]] = ("discrete",)

    conservatism: float = Field(
        default=1.0, ge=0, le=1000, description="Weight of holding values down beside the temporal difference (alpha)."
    )


class CqlSacParameters(Offline):
    """Conservative soft actor-critic (Kumar et al., 2020, arXiv 2006.04779): the same for continuous actions."""

    algorithm: ClassVar[str] = "cql-sac"
    summary: ClassVar[str] = "conservative soft actor-critic from recorded experience alone"
    acts: ClassVar[tuple[str, ...]] = ("continuous",)
    spreads: ClassVar[bool] = True

    conservatism: float = Field(
        default=5.0, ge=0, le=1000, description="Weight of holding values down beside the temporal difference (alpha)."
    )
    initial_temperature: float = Field(
        default=1.0, gt=0, le=1000, description="Weight of the entropy at the start; learned from there."
    )
    target_entropy_scale: float = Field(
        default=1.0, ge=0, le=100, description="The entropy wanted is minus this for each number in an action."
    )


class IqlOfflineParameters(Offline):
    """Implicit Q-learning (Kostrikov et al., 2021, arXiv 2110.06169): only actions of the log are ever judged."""

    algorithm: ClassVar[str] = "iql-offline"
    summary: ClassVar[str] = "implicit Q-learning from recorded experience alone"
    spreads: ClassVar[bool] = True

    expectile: float = Field(
        default=0.7,
        gt=0,
        lt=1,
        description="Of the values of logged actions that a state's value is (tau): 0.5 their mean, near 1 the best.",
    )
    inverse_temperature: float = Field(
        default=1.0,
        ge=0,
        le=100,
        description="How much the policy prefers better actions, in standard deviations of the advantage (beta); 0 "
        "imitates the log.",
    )
