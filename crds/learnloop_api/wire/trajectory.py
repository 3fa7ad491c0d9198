"""Trajectories, the results of their tasks, and experience as learners read it."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from learnloop_api.wire.base import MOST, Identifier, LogProb, Name, Real, Sha256, Timestamp, WireModel

MAX_TASK_TYPE = 64
MOST_AGENTS = 32

TaskType = Annotated[str, Field(max_length=MAX_TASK_TYPE, pattern=r"^[A-Za-z0-9._/-]*$")]


class Participant(WireModel):
    """An agent that took part, and what is known of the team without it."""

    agent: Name
    without: Real | None = Field(
        default=None, description="the raw reward that the others would have got without it; null: unknown"
    )


class TaskResult(WireModel):
    """Output, expected output, and who took part."""

    task_type: TaskType = Field(default="", description="what kind of task it was, e.g. math: evaluators choose by it")
    output: JsonValue = Field(default=None, description="what came out; null: unknown")
    expected: JsonValue = Field(default=None, description="what should have come out; null: unknown")
    metadata: dict[str, JsonValue] = Field(default_factory=dict, max_length=64)
    agents: list[Name | Participant] = Field(
        default_factory=list, max_length=MOST_AGENTS, description="who took part; the reward is divided among them"
    )

    def participants(self) -> dict[str, float | None]:
        """Every agent once, with what the others would have got without it."""
        named = (item if isinstance(item, Participant) else Participant(agent=item) for item in self.agents)
        return {item.agent: item.without for item in named}


MAX_STEPS = 10_000
MAX_OBSERVATION = 65_536
MAX_TASK = 1024
MAX_REVISION = 64

ObservedNumbers = Annotated[list[Real], Field(min_length=1, max_length=MAX_OBSERVATION)]
Choice = Annotated[int, Field(ge=-MOST, le=MOST)]
ChosenNumbers = Annotated[list[Real], Field(max_length=4096)]
Observation = ObservedNumbers | dict[str, JsonValue] | str
Action = Choice | ChosenNumbers | dict[str, JsonValue] | str


class Step(WireModel):
    """One interaction: what the agent saw, what it did, what came back."""

    observation: Observation = Field(description="what the agent saw before acting")
    action: Action = Field(description="what it did")
    log_prob: LogProb | None = Field(
        default=None,
        description="natural log of the behaviour policy's probability of the action, at most 0; where numbers are "
        "drawn, of their density, which may be above 0",
    )
    reward: Real = Field(default=0.0, description="the environment's own reward for this step")
    terminated: bool = Field(default=False, description="the environment ended the episode here")
    truncated: bool = Field(default=False, description="a limit ended the episode here")
    exploration: bool = Field(default=False, description="the action was sampled rather than the greedy one")
    q_value: Real | None = Field(
        default=None, description="what the policy thought the action worth, where it is one that learns values"
    )


class Outcome(WireModel):
    """How the episode ended."""

    status: Literal["completed", "error", "withdrawn"] = Field(
        description="completed: ran to its end; error: the agent or its tool failed; withdrawn: its arm was taken away"
    )
    episode_return: Real = Field(description="sum of the environment's rewards, undiscounted")
    success: bool | None = Field(
        default=None, description="did the task succeed; null when the task has no such notion"
    )
    values: dict[str, Real] = Field(
        default_factory=dict,
        max_length=64,
        description="named measurements a RewardPolicy may use, e.g. tool_errors",
    )


class Trajectory(WireModel):
    """A whole episode. `trajectory_id` is chosen by the publisher and makes publishing idempotent."""

    trajectory_id: Identifier
    agent: Name = Field(description="name of the LearningAgent, in the publisher's namespace")
    task: str = Field(default="", max_length=MAX_TASK)
    episode_id: Identifier
    model_deployment: Name | None = None
    policy_revision: str = Field(
        max_length=MAX_REVISION, description="revision of the policy that acted, e.g. 3f9a2c81"
    )
    started_at: Timestamp
    ended_at: Timestamp
    steps: list[Step] = Field(min_length=1, max_length=MAX_STEPS)
    last_observation: Observation | None = Field(
        default=None,
        description="what the agent saw after its last step: where a limit cut the episode off, its future is judged "
        "by it; null if it was not recorded",
    )
    outcome: Outcome
    retrieval_ids: list[Identifier] = Field(
        default_factory=list, max_length=256, description="memory recalls made during this episode"
    )
    metadata: dict[str, str] = Field(default_factory=dict, max_length=64)
    result: TaskResult | None = Field(
        default=None, description="what came of the task, for evaluators to score; null: unknown"
    )


MOST_CHOICES = 16
"""Tasks or revisions that a selection may name."""
MOST_NAMED = 100
"""Ids of episodes that a proof names itself; all of them stand in the list it points to."""
OPTED_IN = "opted_in"
"""Of a trajectory's metadata, `"true"`: the person it belongs to agreed to learning from it."""

JOINT_TASK = "joint_task"
"""Of a trajectory's metadata: the id of a task that several agents worked on, the same in the trajectories of all."""


Wanted = Annotated[str, Field(max_length=1024, pattern=r"^[^\x00]*$")]


class EpisodeSelection(WireModel):
    """Filter of an agent's logged episodes; an episode meets all conditions."""

    source: Literal["postgresql", "clickhouse"] = "postgresql"
    since: Timestamp | None = Field(default=None, description="received then or later")
    until: Timestamp | None = Field(default=None, description="received before then")
    tasks: list[Wanted] = Field(default_factory=list, max_length=MOST_CHOICES)
    model_revisions: list[Wanted] = Field(default_factory=list, max_length=MOST_CHOICES)
    min_reward: Real | None = Field(default=None, description="of the reward its RewardPolicy gave; without one: not")
    max_reward: Real | None = None
    success: bool | None = None
    opted_in: bool = Field(default=False, description='only those whose metadata says `opted_in: "true"`')
    reward_policy: Name | None = Field(default=None, description="whose evaluators' scores come with the episodes")
    reward_policy_revision: str | None = Field(
        default=None, min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
    )


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
    """Episodes of an agent's log that a training run read: the lineage from a policy to its episodes."""

    agent: Name | None = Field(default=None, description="null: a recorded file")
    agents: dict[Name, int] = Field(
        default_factory=dict, max_length=MOST_AGENTS, description="episodes of each, where several agents were read"
    )
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


MOST_SIMILAR = 100


class SimilarQuestion(WireModel):
    """POST /api/v1/experience/similar: which recorded steps of an agent began in a state like this one?"""

    agent_id: Name
    state: ObservedNumbers
    k: int = Field(default=5, ge=1, le=MOST_SIMILAR)


class SimilarExperience(WireModel):
    """A recorded step: what was seen and done, and what came of it."""

    trajectory_id: Identifier
    step: int = Field(ge=0, description="of the episode, from 0")
    state: ObservedNumbers
    action: Action
    reward: Real = Field(description="of the step, from the environment")
    next_state: ObservedNumbers | None = Field(default=None, description="null: not recorded")
    terminated: bool
    episode_return: Real
    success: bool | None = None
    distance: Real = Field(ge=0, description="Euclidean, each number in units of its deviation among the steps")


class SimilarExperiences(WireModel):
    """Nearest first, of the agent's newest steps whose observation is as many numbers."""

    looked_at: int = Field(ge=0, description="steps")
    experiences: list[SimilarExperience] = Field(max_length=MOST_SIMILAR)


class ExploredAction(WireModel):
    """An action that was drawn rather than the greedy one."""

    timestamp: Timestamp = Field(description="when its episode ended")
    agent_id: Name
    step: int = Field(ge=0, description="of the episode, from 0")
    action_hash: Sha256
    reward: Real = Field(description="of the step, from the environment")
    q_value: Real | None = Field(description="what the policy thought it worth; null: unknown")
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
