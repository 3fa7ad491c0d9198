"""What an agent got better at, week by week: GET /api/v1/agents/{agent}/progress."""

from datetime import date

from pydantic import Field

from learnloop_api.wire.base import Name, WireModel

MOST_WEEKS = 104


class WeekOfAgent(WireModel):
    """Figures of one week (Monday to Sunday, UTC); null where nothing was counted. Rates are shares, 0 to 1."""

    week: date = Field(description="its Monday")
    episodes: int = Field(ge=0, description="that arrived; withdrawn ones count for nothing")
    success_rate: float | None = Field(default=None, description="of the episodes that say whether they succeeded")
    completion_seconds: float | None = Field(default=None, description="mean duration of the successful episodes")
    turns: float | None = Field(default=None, description="mean outcome value `turns`, else steps, of the successes")
    satisfaction: float | None = Field(default=None, description="mean opinion of people, -1 to 1, by rated episode")
    rated: int = Field(default=0, ge=0, description="episodes that somebody rated")
    raw_reward: float | None = Field(default=None, description="mean, before normalisation")
    trainings: int = Field(default=0, ge=0, description="runs that ended, well or not")
    training_success_rate: float | None = Field(
        default=None, description="of these, those whose policy passed the gates"
    )
    gains: int = Field(default=0, ge=0, description="of these, those whose gain is known")
    gain_per_training: float | None = Field(
        default=None,
        description="mean over those runs of the held-out return minus that of the policy before, on the same episodes",
    )
    deployments: int = Field(default=0, ge=0, description="revisions that were tried or served for the first time")
    deployment_success_rate: float | None = Field(default=None, description="of these, those that are no rollbacks")
    rollbacks: int = Field(
        default=0,
        ge=0,
        description="of these, those that were rolled back, also after they served all, and those given up: not played "
        "for a day, and never what serves",
    )
    false_rollbacks: int = Field(
        default=0,
        ge=0,
        description="of the rollbacks, those whose episodes returned no less, and succeeded no less often, than the "
        "other revisions' at the same time; at least 10 episodes of each",
    )


class AgentProgress(WireModel):
    """Weeks in their order, the oldest first; a week in which nothing happened is left out."""

    agent: Name
    weeks: list[WeekOfAgent] = Field(max_length=MOST_WEEKS)
