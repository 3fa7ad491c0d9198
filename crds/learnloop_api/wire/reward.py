"""Computed rewards: subject `agent.rl.reward.v1.<namespace>.<agent>` and the REST history."""

from pydantic import Field

from learnloop_api.wire.base import Identifier, Name, Timestamp, WireModel


class Reward(WireModel):
    """The reward of one trajectory under one RewardPolicy revision."""

    trajectory_id: Identifier
    agent: Name
    reward_policy: Name
    reward_policy_revision: str = Field(max_length=64)
    components: dict[str, float] = Field(max_length=32, description="value of each component before weighting")
    raw_reward: float = Field(description="weighted sum of the components")
    reward: float = Field(description="raw_reward after normalisation and bounds")
    computed_at: Timestamp


class AgentStats(WireModel):
    """What the operator reads about one agent's experience: GET /api/v1/agents/{agent}/stats."""

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
    training_request: str | None = Field(
        default=None,
        max_length=128,
        description="id of the newest agent.rl.training.request.v1 for this agent",
    )
