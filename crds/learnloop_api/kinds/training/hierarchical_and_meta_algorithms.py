"""Hyperparameters of hierarchical, curious, meta- and offline learners."""

from typing import Annotated, ClassVar

from pydantic import Field

from learnloop_api.kinds.base import Resource
from learnloop_api.kinds.cel_rules import Rule
from learnloop_api.kinds.training.offline_algorithms import FromLog
from learnloop_api.kinds.training.optimiser import Optimised
from learnloop_api.kinds.training.team_algorithms import IndependentDqnParameters, Layers


class Curiosity(Resource):
    """Intrinsic curiosity (Pathak et al., 2017, arXiv 1705.05363): a reward for what could not be predicted."""

    scale: float = Field(default=0.1, gt=0, le=1000, description="Intrinsic reward for a squared error of 2 (eta).")
    features: int = Field(default=16, ge=1, le=1024, description="Numbers that describe an observation.")
    learning_rate: float = Field(default=1e-3, gt=0, le=1, description="Step size of Adam for both models.")
    hidden: Annotated[Layers, Field(min_length=1, max_length=8)] = Field(
        default=[64], description="Widths of the hidden layers of features and models."
    )


class HierarchicalDqnParameters(IndependentDqnParameters):
    """Hierarchical DQN (Kulkarni et al., 2016, arXiv 1604.06057): landmarks are chosen above, actions below."""

    algorithm: ClassVar[str] = "hierarchical-dqn"
    summary: ClassVar[str] = "landmarks above, actions below"
    values_actions: ClassVar[bool] = True
    team: ClassVar[bool] = False

    controller_discount: float = Field(
        default=0.9, ge=0, le=1, description="Discount on the way to a landmark; lower than discount: ways are shorter."
    )
    option_steps: int = Field(
        default=20, ge=1, le=100_000, description="Steps after which a landmark that was not reached is given up."
    )


class VtraceParameters(FromLog):
    """Off-policy actor-critic on recorded trajectories with V-trace (Espeholt et al., 2018, arXiv 1802.01561)."""

    algorithm: ClassVar[str] = "vtrace"
    summary: ClassVar[str] = "off-policy from recorded experience"
    spreads: ClassVar[bool] = True

    discount: float = Field(default=0.99, ge=0, le=1, description="Discount of future rewards (gamma).")
    trace: float = Field(default=0.95, ge=0, le=1, description="Decay of the traces (lambda).")
    ratio_max: float = Field(default=1.0, gt=0, le=100, description="Importance ratios are cut off here (rho).")
    imitation: float = Field(
        default=0.1, ge=0, le=10, description="Weight of imitating the recording, in units of the advantage."
    )
    entropy_coefficient: float = Field(default=0.0, ge=0, le=1, description="Weight of the entropy bonus.")
    value_coefficient: float = Field(default=0.5, ge=0, le=10, description="Weight of the value loss.")
    batch_episodes: int = Field(default=16, ge=1, le=4096, description="Recorded episodes per update over all ranks.")
    max_gradient_norm: float = Field(default=5.0, gt=0, le=1000, description="Gradients are clipped to this norm.")


class MamlParameters(Optimised):
    """Model-agnostic meta-learning (Finn et al., 2017, arXiv 1703.03400) over the tasks in data.randomise."""

    algorithm: ClassVar[str] = "maml"
    acts: ClassVar[tuple[str, ...]] = ("continuous",)
    summary: ClassVar[str] = "meta-learning over a family of tasks"
    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.environments % self.episodes == 0",
            "environments are tasks × episodes: make it a multiple of episodes",
            ".environments",
        ),
    )

    learning_rate: float = Field(default=3e-3, gt=0, le=1, description="Step size of Adam for the meta-update.")
    adaptation_rate: float = Field(default=0.1, gt=0, le=10, description="Step size of the inner steps (alpha).")
    adaptation_steps: int = Field(default=1, ge=1, le=10, description="Inner steps before a task is judged.")
    episodes: int = Field(default=10, ge=2, le=1024, description="Episodes of a task for each inner step.")
    environments: int = Field(default=200, ge=2, le=4096, description="Tasks × episodes, side by side on one rank.")
    discount: float = Field(default=0.99, ge=0, le=1, description="Discount of future rewards (gamma).")
    first_order: bool = Field(default=False, description="Drops the second derivatives: faster, less exact.")
    max_gradient_norm: float = Field(default=1.0, gt=0, le=1000, description="Gradients are clipped to this norm.")
    hidden: Annotated[Layers, Field(min_length=1, max_length=8)] = Field(
        default=[64, 64], description="Widths of the hidden layers, input side first."
    )
