"""What all learners share: what an algorithm declares of itself, and how the step size changes over a run."""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from learnloop_api.kinds.base import Resource


class Optimised(Resource):
    """Hyperparameters of an algorithm that takes gradient steps.

    An algorithm's own class says what the contract has to know of it; `algorithms.ALGORITHMS` has one line for it.

    Attributes:
        algorithm: the name in spec.algorithm; the block of hyperparameters has the same name in camelCase.
        summary: what it is, in a few words, for `kubectl explain`.
        values_actions: its network gives values of actions, which are no logits: softmax of them is a policy that
            nobody trained.
        language: it trains language models.
        acts: the kinds of actions that it can learn; language models have none of these.
        team: it trains the agents of a team.
        from_log: it takes no step in an environment, and learns where there is none.
        sampled: it can learn from steps that samplers took with a somewhat older policy.
    """

    algorithm: ClassVar[str]
    acts: ClassVar[tuple[str, ...]] = ()
    team: ClassVar[bool] = False
    summary: ClassVar[str]
    values_actions: ClassVar[bool] = False
    language: ClassVar[bool] = False
    scores_answers: ClassVar[bool] = False
    from_log: ClassVar[bool] = False
    sampled: ClassVar[bool] = False

    if TYPE_CHECKING:  # each algorithm that plays declares these with bounds and defaults of its own
        environments: int = 1
        hidden: list[int] = []

    learning_rate_schedule: Literal["linear", "cosine", "constant"] = Field(
        default="linear", description="How the step size falls to 0 over totalSteps; constant: it does not."
    )
    warmup: float = Field(
        default=0.0, ge=0, lt=1, description="Share of totalSteps over which the step size first rises from 0."
    )


class RemembersLog(Resource):
    """Of a learner that mixes its own transitions with those that data.learningAgentRef has logged."""

    local_batch_size: int = Field(
        default=32,
        ge=1,
        le=65536,
        description="Where logged experience is mixed in: transitions of the run's own in an update, of all ranks "
        "together. Without any, batchSize counts.",
    )
    memory_batch_size: int = Field(
        default=32,
        ge=0,
        le=65536,
        description="Logged transitions beside them in each update, of all ranks together; 0: no log is read.",
    )
    max_recorded_steps: int = Field(
        default=100_000, ge=1, le=10_000_000, description="Recorded steps taken at most, the newest of an agent."
    )
