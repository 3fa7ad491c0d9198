"""One episode as the agent experienced it: subject `agent.rl.trajectory.v1.<namespace>.<agent>`.

Behaviour log-probabilities and the policy revision are mandatory: without them no off-policy estimate of
a later policy is possible (Precup, Sutton & Singh, 2000).
"""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from learnloop_api.wire.base import MOST, Identifier, LogProb, Name, Real, Timestamp, WireModel
from learnloop_api.wire.task_result import TaskResult

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
        "by it; null when nobody recorded it",
    )
    outcome: Outcome
    retrieval_ids: list[Identifier] = Field(
        default_factory=list, max_length=256, description="memory recalls made during this episode"
    )
    metadata: dict[str, str] = Field(default_factory=dict, max_length=64)
    result: TaskResult | None = Field(
        default=None, description="what came of the task, for evaluators to score; null: nobody said"
    )
