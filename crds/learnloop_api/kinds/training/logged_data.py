"""Selection of the logged experience, and of the rewards, that a run learns from."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import Resource, Rule, Time
from learnloop_api.kinds.reward_policy import LARGEST_REWARD
from learnloop_api.wire.trajectory import MAX_REVISION, MAX_TASK, MOST_CHOICES

TaskText = Annotated[str, Field(min_length=1, max_length=MAX_TASK)]
ModelRevision = Annotated[str, Field(min_length=1, max_length=MAX_REVISION)]


class EpisodeFilter(Resource):
    """An episode is read where it meets all that is said. Left out, every episode of the agent is."""

    cel_rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.since) || !has(self.until) || self.since < self.until",
            "since must be before until: correct the window",
            ".since",
        ),
        Rule(
            "!has(self.maxAgeSeconds) || !has(self.since)",
            "since and maxAgeSeconds both say where the window begins: keep one of them",
            ".maxAgeSeconds",
        ),
        Rule(
            "!has(self.minReward) || !has(self.maxReward) || self.minReward <= self.maxReward",
            "minReward must not be above maxReward: correct the range",
            ".minReward",
        ),
    )

    source: Literal["postgresql", "clickhouse"] = Field(
        default="postgresql",
        description="postgresql: what the data plane still keeps itself; clickhouse: all that its warehouse keeps, "
        "where the installation has one.",
    )
    since: Time | None = Field(default=None, description="Received then or later.")
    until: Time | None = Field(default=None, description="Received before then.")
    max_age_seconds: int | None = Field(
        default=None, ge=1, le=315_360_000, description="Received at most so long before the run read them."
    )
    tasks: list[TaskText] = Field(default_factory=list, max_length=MOST_CHOICES, description="Of one of these tasks.")
    model_revisions: list[ModelRevision] = Field(
        default_factory=list, max_length=MOST_CHOICES, description="Played by one of these policy revisions."
    )
    min_reward: float | None = Field(
        default=None,
        ge=-LARGEST_REWARD,
        le=LARGEST_REWARD,
        description="With a stored reward of at least this; episodes without a reward are left out.",
    )
    max_reward: float | None = Field(
        default=None, ge=-LARGEST_REWARD, le=LARGEST_REWARD, description="With a stored reward of at most this."
    )
    success: bool | None = Field(
        default=None, description="true: only those that succeeded; false: only those that failed."
    )
    opted_in: bool = Field(
        default=False,
        description='Only those whose metadata says `opted_in: "true"`: the person agreed to learning from them. '
        "Episodes of who opted out are never read.",
    )


class LoggedData(Resource):
    """The part of an agent's log, and the rewards, that a run learns from."""

    rewards: Literal["environment", "policy"] | None = Field(
        default=None,
        description="environment (left out): learn from the environment's own rewards. policy: from what the agent's"
        " RewardPolicy makes of the same steps, played and logged, by the revision in force when the run"
        " begins. Evaluation counts the environment's rewards either way.",
    )
    filter: EpisodeFilter | None = Field(
        default=None, description="Which logged episodes are learned from; left out, the newest of all."
    )
