"""Logged episodes as learners read them: GET /api/v1/experience/trajectories."""

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from learnloop_api.wire.base import MOST, Identifier, Name, Real, Sha256, Timestamp, WireModel
from learnloop_api.wire.trajectory import MAX_REVISION, MAX_STEPS, Observation, Step

MOST_CHOICES = 16
"""Tasks or revisions that a selection may name."""
MOST_NAMED = 100
"""Ids of episodes that a manifest names itself; all of them stand in the list it points to."""
OPTED_IN = "opted_in"
"""Of a trajectory's metadata, `"true"`: the person it belongs to agreed to learning from it."""

JOINT_TASK = "joint_task"
"""Of a trajectory's metadata: the id of a task that several agents worked on, the same in the trajectories of all."""


class EpisodeSelection(WireModel):
    """Which logged episodes of an agent are read; an episode meets all that is said."""

    source: Literal["postgresql", "clickhouse"] = "postgresql"
    since: Timestamp | None = Field(default=None, description="received then or later")
    until: Timestamp | None = Field(default=None, description="received before then")
    tasks: list[str] = Field(default_factory=list, max_length=MOST_CHOICES)
    model_revisions: list[str] = Field(default_factory=list, max_length=MOST_CHOICES)
    min_reward: Real | None = Field(default=None, description="of the reward its RewardPolicy gave; without one: not")
    max_reward: Real | None = None
    success: bool | None = None
    opted_in: bool = Field(default=False, description='only those whose metadata says `opted_in: "true"`')
    reward_policy: Name | None = Field(default=None, description="whose evaluators' scores come with the episodes")
    reward_policy_revision: str | None = Field(default=None, max_length=64)


class LoggedEpisode(WireModel, extra="ignore"):
    """One episode to learn from."""

    trajectory_id: Identifier
    policy_revision: str = Field(max_length=MAX_REVISION)
    status: Literal["completed", "error", "withdrawn"] = "completed"
    episode_return: Real
    success: bool | None = None
    values: dict[str, JsonValue] = Field(default_factory=dict, description="the outcome's; text where it was redacted")
    scores: dict[str, float] = Field(default_factory=dict, description="of evaluators, by the component's name")
    credited_to_others: Real | None = Field(
        default=None,
        description="of what it is worth, what other agents that took part were credited with; null: not divided",
    )
    credited_by_others: Real | None = Field(
        default=None, description="what it earns of joint tasks that others reported; null: of none"
    )
    steps: list[Step] = Field(min_length=1, max_length=MAX_STEPS)
    last_observation: Observation | None = None


class EpisodePage(WireModel, extra="ignore"):
    """Some of them, newest first."""

    trajectories: list[LoggedEpisode]
    next: str | None = Field(max_length=4096, description="`after` of the next page; null: this is the last one")


class ExperienceRead(WireModel):
    """What a training run read of an agent's log: the lineage from a policy to the episodes in it."""

    agent: Name | None = Field(default=None, description="null: a recorded file")
    selection: EpisodeSelection | None = None
    read_at: datetime
    episodes: int = Field(
        ge=0, le=MOST, description="read; of those, some may have had no step that fits the environment"
    )
    steps: int = Field(ge=0, le=MOST, description="of them, those that were learned from")
    credited: int = Field(
        default=0, ge=0, le=MOST, description="episodes whose reward was shared with other agents of a joint task"
    )
    model_revisions: list[str] = Field(max_length=MOST_NAMED, description="of the policies that acted, sorted")
    trajectory_ids: list[Identifier] = Field(
        default_factory=list, max_length=MOST_NAMED, description="of the newest of them"
    )
    ids_uri: str | None = Field(
        default=None, max_length=2048, description="the list of all ids, one a line, newest first; null: none"
    )
    ids_sha256: Sha256 | None = Field(default=None, description="digest of that list")
    message: str = Field(
        default="",
        max_length=1024,
        description="why nothing was read or fits, or what its RewardPolicy misses in all of it; else empty",
    )


class ExploredAction(WireModel):
    """An action that was drawn rather than the greedy one."""

    timestamp: Timestamp = Field(description="when its episode ended")
    agent_id: Name
    step: int = Field(ge=0, description="of the episode, from 0")
    action_hash: Sha256
    reward: Real = Field(description="of the step, from the environment")
    q_value: Real | None = Field(description="what the policy thought it worth; null: nobody said")
    exploration_flag: Literal[True]


class ExploredEpisode(WireModel):
    """An episode's explored actions. `sha256` is over all of them, as the audit chain has it."""

    trajectory_id: Identifier
    policy_revision: str = Field(max_length=64)
    sha256: Sha256
    actions: list[ExploredAction] = Field(max_length=10_000)


class ExplorationPage(WireModel):
    """GET /api/v1/agents/{agent}/exploration: newest first; episodes without explored actions are left out."""

    episodes: list[ExploredEpisode] = Field(max_length=50)
    next: int | None = Field(description="`before` of the page that follows; null: there is none")
