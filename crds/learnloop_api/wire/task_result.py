"""What came of a task, for evaluators to score and for the agents that took part to share."""

from typing import Annotated

from pydantic import Field, JsonValue

from learnloop_api.wire.base import Name, Real, WireModel

MAX_TASK_TYPE = 64
MOST_AGENTS = 32
MOST_TEAMS = 256

TaskType = Annotated[str, Field(max_length=MAX_TASK_TYPE, pattern=r"^[A-Za-z0-9._/-]*$")]


class Participant(WireModel):
    """An agent that took part, and what is known of the team without it."""

    agent: Name
    without: Real | None = Field(
        default=None, description="the raw reward that the others would have got without it; null: nobody knows"
    )


class TeamValue(WireModel):
    """What a smaller team got, or would have got, for the same task."""

    agents: list[Name] = Field(max_length=MOST_AGENTS, description="empty: what comes of nothing")
    reward: Real


class TaskResult(WireModel):
    """Output, expected output, and who took part."""

    task_type: TaskType = Field(default="", description="what kind of task it was, e.g. math: evaluators choose by it")
    output: JsonValue = Field(default=None, description="what came out; null: nobody said")
    expected: JsonValue = Field(default=None, description="what should have come out; null: nobody knows")
    metadata: dict[str, JsonValue] = Field(default_factory=dict, max_length=64)
    agents: list[Name | Participant] = Field(
        default_factory=list, max_length=MOST_AGENTS, description="who took part; the reward is divided among them"
    )
    teams: list[TeamValue] = Field(
        default_factory=list, max_length=MOST_TEAMS, description="what is known of smaller teams"
    )

    def participants(self) -> dict[str, float | None]:
        """Every agent once, with what the others would have got without it."""
        named = (item if isinstance(item, Participant) else Participant(agent=item) for item in self.agents)
        return {item.agent: item.without for item in named}
