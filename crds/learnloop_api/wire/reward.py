"""Computed rewards: subject `agent.rl.reward.v1.<namespace>.<agent>` and the REST history."""

from typing import Literal

from pydantic import Field, JsonValue

from learnloop_api.wire.base import Identifier, Name, Real, Timestamp, WireModel
from learnloop_api.wire.training_request import TrainingRequest


class AgentPart(WireModel):
    """One agent's part of the reward of a task that several agents worked on."""

    agent: Name
    credit_assigned: float
    method: str = Field(max_length=32, description="equal or difference, as it was done in the end")


class UsedNormalisation(WireModel):
    """How a raw reward was put on the agent's own scale."""

    method: str = Field(max_length=32)
    clip: float = Field(description="normalised rewards stay within ± this")


class Reward(WireModel):
    """The reward of one trajectory under one RewardPolicy revision."""

    trajectory_id: Identifier
    agent: Name
    reward_policy: Name
    reward_policy_revision: str = Field(max_length=64)
    components: dict[str, float] = Field(max_length=32, description="value of each component before weighting")
    raw_reward: float = Field(description="weighted sum of the components")
    reward: float = Field(description="raw_reward after normalisation, bounds and safety constraints")
    confidence: float = Field(
        default=1.0, ge=0, le=1, description="share of the weights that were measured, less while the scale is young"
    )
    violated: list[str] = Field(default_factory=list, max_length=16, description="safety constraints that were broken")
    computed_at: Timestamp
    credit_assigned: float | None = Field(
        default=None, description="this agent's part of its task's reward; null if it was not divided"
    )
    credits: list[AgentPart] = Field(
        default_factory=list, max_length=32, description="the parts of all agents that took part; empty for one alone"
    )
    weights: dict[str, float] = Field(default_factory=dict, max_length=32, description="of each component")
    evaluators: dict[str, str] = Field(
        default_factory=dict, max_length=32, description="of each component that scores the output, its evaluator"
    )
    normalisation: UsedNormalisation | None = Field(default=None, description="from raw_reward to reward")


class RewardRecord(Reward):
    """A reward as its history has it: GET /api/v1/rewards/history."""

    task_id: str | None = Field(
        max_length=1024, description="the trajectory's task; null where the reward is older than this column"
    )
    metadata: dict[str, JsonValue] = Field(
        description="episode_id, policy_revision, `worth`: what learners are given of it, before normalisation and "
        "bounds, and `credit`: how the reward was divided among the steps, kept when they are gone (method, steps, "
        "last, largest, largest_step)"
    )


class RewardSignals(WireModel):
    """Signs of reward hacking: GET /api/v1/rewards/policies/{name}/revisions/{revision}/signals."""

    suspected: bool | None = Field(description="null: too few rewards to tell")
    reason: Literal["NotEnoughRewards", "NothingFound", "FeedbackDisagrees", "DuplicateTrajectories"]
    sentence: str = Field(max_length=1024, description="what was found, with figures")
    rewards: int = Field(ge=0, description="newest rewards looked at")
    worst: list[Identifier] = Field(
        default_factory=list, max_length=3, description="the episodes that show it best, worst first"
    )
    unrecorded: list[str] = Field(
        default_factory=list,
        max_length=64,
        description="outcome values that the policy names and none of these episodes has, each with its reader",
    )
    recorded: list[str] = Field(
        default_factory=list, max_length=64, description="outcome values that these episodes have"
    )


class GroupGap(WireModel, extra="ignore"):
    """Rewards of two groups for the same outcome, and their distance: one comparison of a bias check."""

    key: str = Field(max_length=80, description="the grouping key, e.g. metadata.language")
    groups: tuple[str, str] = Field(description="the one that earned more, and the one that earned less")
    outcome: Literal["success", "failure", "unsaid"] = Field(
        description="of the episodes compared; unsaid: it is unknown whether they succeeded"
    )
    measure: Literal["reward", "component"]
    component: str | None = Field(default=None, max_length=50, description="whose part of the reward it is")
    gap: float = Field(ge=0, description="difference of the means")
    low: float = Field(description="lower end of its interval, all comparisons together")
    high: float = Field(description="upper end")
    episodes: tuple[int, int] = Field(description="of each group")


class BiasFigures(WireModel, extra="ignore"):
    """Result of a bias check: POST /api/v1/rewards/bias."""

    suspected: bool | None = Field(description="null: too few episodes of two groups to tell")
    reason: Literal["NotEnoughEpisodes", "NothingFound", "RewardGap", "ComponentGap"]
    sentence: str = Field(max_length=1024, description="what was found, with figures")
    episodes: int = Field(ge=0, description="newest episodes looked at")
    groups: dict[str, int] = Field(default_factory=dict, max_length=4, description="groups compared, by key")
    groups_left_out: int = Field(default=0, ge=0, description="groups that were too small, or beyond the 20 largest")
    comparisons: int = Field(default=0, ge=0)
    gaps: list[GroupGap] = Field(default_factory=list, max_length=20, description="the surest first")


class DryRunFigures(WireModel, extra="ignore"):
    """Part of a dry-run's result that the operator reads: POST /api/v1/rewards/dry-run."""

    trajectories: int = Field(ge=0, description="episodes compared")
    correlation: float | None = Field(default=None, ge=-1, le=1, description="Spearman's, with the policies in force")
    sentence: str = Field(max_length=1024)


class ArmReturns(WireModel):
    """Returns of an arm's newest episodes."""

    revision: str = Field(max_length=64, description="the policy_revision that acted")
    returns: list[Real] = Field(max_length=200, description="environment returns, oldest first")


class AgentStats(WireModel):
    """One agent's experience, for the operator: GET /api/v1/agents/{agent}/stats."""

    agent: Name
    trajectories: int = Field(ge=0, description="trajectories stored since the agent was registered")
    rewarded: int = Field(ge=0, description="of these, how many have a reward")
    last_trajectory_at: Timestamp | None = None
    recent_episodes: int = Field(ge=0, description="episodes behind the recent figures (at most 100)")
    recent_return_mean: float | None = Field(default=None, description="mean environment return of the recent episodes")
    recent_reward_mean: float | None = Field(default=None, description="mean normalised reward of the recent episodes")
    recent_success_rate: float | None = Field(default=None, ge=0, le=1)
    first_return_mean: float | None = Field(
        default=None, description="mean environment return of the first (at most 100) episodes: the baseline"
    )
    arms: list[ArmReturns] = Field(
        default_factory=list,
        max_length=8,
        description="of the agent's newest 400 episodes, the returns by who acted; anomalies are looked for in them",
    )
    training_request: str | None = Field(
        default=None,
        max_length=128,
        description="id of the newest agent.rl.training.request.v1 for this agent",
    )
    training_wish: TrainingRequest | None = Field(default=None, description="that request as a whole")
