"""The tables, as sqlmodel classes (the memories': `memory_tables.py`). Names follow specification 000 where it has one.

Decisions that differ from the specification's literal schema:

- Every row carries `namespace`; `row_level_security.py` makes rows of other namespaces invisible.
- All times are timestamptz; agents and jobs are known by their Kubernetes names, so their ids are text.
- `training_transitions` holds one row per *trajectory* with the steps as one document, not one row per step: an
  episode is always read whole, its next_state is the next step's state (storing both doubles the volume), and 500
  index entries per CartPole episode buy nothing. `trajectories` has the narrow row that gets counted, and
  has the columns that are the same in every step: its `agent_id` is the steps' agent_id. `done` is `terminated` or
  `truncated` of the last step; a learner needs to know which of the two. There is no `batch_id`: learners read
  episodes by agent and time and draw their own batches.
- `reward_history.reward` is `shaped_reward`, of one trajectory of one agent; `components` says how it came about.
  `task_id` is the trajectory's `task`, which its publisher names. `credit_assigned` is the agent's part of its task's
  reward: what a team did without it is taken off by the components already, so it is `reward`. How that was divided
  among the steps is computed from them when asked; what is left when retention took them is in `metadata`.
- `model_checkpoints.agent_id` and `performance_metrics` are of the upload: who was trained, and the figures of the
  newest heartbeat until then. A run by hand trains no agent: NULL.
- No foreign key points to `agents`: experience may arrive before its agent is registered and outlives it.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Computed,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlmodel import Field, SQLModel

from learnloop_api.wire.trajectory import JOINT_TASK

# Short forms of the columns that every table is made of.


def column(
    type_: Any, *, null: bool = False, key: bool = False, default: str | None = None, name: str | None = None
) -> Any:
    """A column of this SQL type; `default` is an SQL expression, `name` another than the field's."""
    return Field(
        sa_column=Column(
            name, type_, nullable=null, primary_key=key, server_default=text(default) if default is not None else None
        )
    )


def time_column(*, null: bool = False, key: bool = False, default: str | None = None) -> Any:
    """A timestamptz column: every time here has a zone."""
    return column(DateTime(timezone=True), null=null, key=key, default=default)


def sequence_column(*, key: bool = False) -> Any:
    """A number that PostgreSQL gives to each new row."""
    return Field(sa_column=Column(BigInteger, Identity(always=True), nullable=False, primary_key=key))


class Tenant(SQLModel, table=True):
    """Namespaces ever seen: the only table without row-level security, so that workers know where to look."""

    __tablename__ = "tenants"
    namespace: str = column(Text, key=True)
    registered_at: datetime = time_column(default="now()")


class Agent(SQLModel, table=True):
    """An agent and its running totals; the row appears with the first registration, trajectory or request."""

    __tablename__ = "agents"
    namespace: str = column(Text, key=True)
    name: str = column(Text, key=True)
    since: datetime = time_column(default="now()")
    registered_at: datetime | None = time_column(null=True)
    reward_policy: str | None = column(Text, null=True)
    reward_policy_revision: str | None = column(Text, null=True)
    trajectories: int = column(BigInteger, default="0")
    rewarded: int = column(BigInteger, default="0")
    last_trajectory_at: datetime | None = time_column(null=True)
    first_episodes: int = column(Integer, default="0")
    first_return_sum: float = column(Double, default="0")
    training_request: str | None = column(Text, null=True)
    training_requested_at: datetime | None = time_column(null=True)
    training_wish: str | None = column(Text, null=True)
    training_request_ids: list[str] = column(ARRAY(Text), default="'{}'")
    memory_group: str | None = column(Text, null=True)


class RewardPolicyRevision(SQLModel, table=True):
    """One immutable revision of a RewardPolicy: its spec as published."""

    __tablename__ = "reward_policy_revisions"
    namespace: str = column(Text, key=True)
    name: str = column(Text, key=True)
    revision: str = column(Text, key=True)
    spec: dict[str, Any] = column(JSONB)
    created_at: datetime = time_column(default="now()")


class TrajectoryRow(SQLModel, table=True):
    """One episode without its steps. `seq` is the order of arrival."""

    __tablename__ = "trajectories"
    __table_args__ = (
        Index("ix_trajectories_agent", "namespace", "agent_id", "seq"),
        Index(
            "ix_trajectories_unrewarded",
            "namespace",
            "agent_id",
            "received_at",
            "seq",
            postgresql_where=text("reward IS NULL"),
        ),
        Index("ix_trajectories_unremembered", "namespace", "seq", postgresql_where=text("NOT remembered")),
        Index("ix_trajectories_received", "namespace", "received_at"),
        Index(
            "ix_trajectories_arm",
            "namespace",
            "model_deployment",
            "policy_revision",
            "received_at",
            postgresql_where=text("model_deployment IS NOT NULL"),
        ),
        Index("ix_trajectories_unwarehoused", "namespace", "seq", postgresql_where=text("NOT warehoused")),
        Index(
            "ix_trajectories_uncredited",
            "namespace",
            "seq",
            postgresql_where=text("NOT credited AND reward IS NOT NULL AND retrieval_ids <> '[]'::jsonb"),
        ),
        Index(
            "ix_trajectories_joint",
            "namespace",
            "joint_task",
            "agent_id",
            postgresql_where=text("joint_task IS NOT NULL"),
        ),
    )
    namespace: str = column(Text, key=True)
    trajectory_id: str = column(Text, key=True)
    seq: int = sequence_column()
    agent_id: str = column(Text)
    task: str = column(Text)
    episode_id: str = column(Text)
    model_deployment: str | None = column(Text, null=True)
    policy_revision: str = column(Text)
    started_at: datetime = time_column()
    ended_at: datetime = time_column()
    received_at: datetime = time_column(default="now()")
    steps: int = column(Integer)
    status: str = column(Text)
    episode_return: float = column(Double)
    success: bool | None = column(Boolean, null=True)
    outcome_values: dict[str, float] = column(JSONB)
    retrieval_ids: list[str] = column(JSONB)
    # "metadata" is taken by SQLAlchemy's declarative classes.
    labels: dict[str, str] = column(JSONB)
    # A column, for row-level security lets no index answer for what `->>` says.
    joint_task: str | None = Field(sa_column=Column(Text, Computed(f"labels ->> '{JOINT_TASK}'", persisted=True)))
    reward: float | None = column(Double, null=True)
    reward_policy_revision: str | None = column(Text, null=True)
    remembered: bool = column(Boolean, default="false")
    credited: bool = column(Boolean, default="false")
    warehoused: bool = column(Boolean, default="false")


class TrainingTransitions(SQLModel, table=True):
    """The steps of one trajectory, as a JSON array of wire.Step, and what was seen after them; after redaction.

    A trigger deletes it with its episode: a foreign key would look up every episode that is stored.
    """

    __tablename__ = "training_transitions"
    namespace: str = column(Text, key=True)
    trajectory_id: str = column(Text, key=True)
    steps: list[Any] = column(JSONB)
    last_observation: Any = column(JSONB, null=True)


class RewardStatistics(SQLModel, table=True):
    """Running statistics of an agent's raw rewards, for normalisation."""

    __tablename__ = "reward_statistics"
    namespace: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    reward_policy: str = column(Text, key=True)
    reward_policy_revision: str = column(Text, key=True)
    count: int = column(BigInteger, default="0")
    mean: float = column(Double, default="0")
    m2: float = column(Double, default="0")
    low: float | None = column(Double, null=True)
    high: float | None = column(Double, null=True)


class RewardHistory(SQLModel, table=True):
    """One computed reward. `published_at` NULL means: still to be announced on NATS (an outbox)."""

    __tablename__ = "reward_history"
    __table_args__ = (
        Index("ix_rewards_agent", "namespace", "agent_id", "created_at"),
        # For retention alone: an index in the order of time would be read for an agent with few rewards among many.
        Index("ix_rewards_created", "created_at", postgresql_using="brin"),
        Index("ix_rewards_unpublished", "namespace", "created_at", postgresql_where=text("published_at IS NULL")),
    )
    namespace: str = column(Text, key=True)
    trajectory_id: str = column(Text, key=True)
    reward_policy: str = column(Text, key=True)
    reward_policy_revision: str = column(Text, key=True)
    agent_id: str = column(Text)
    components: dict[str, float] = column(JSONB)
    raw_reward: float = column(Double)
    reward: float = column(Double)
    confidence: float = column(Double, default="1")
    violated: list[str] = column(JSONB, default="'[]'")
    created_at: datetime = time_column(default="now()")
    published_at: datetime | None = time_column(null=True)
    task_id: str | None = column(Text, null=True)
    credit_assigned: float | None = column(Double, null=True)
    # "metadata" is taken by SQLAlchemy's declarative classes.
    extra: dict[str, Any] = column(JSONB, default="'{}'", name="metadata")


class Artifact(SQLModel, table=True):
    """A content-addressed blob of one namespace; the bytes lie in the blob store."""

    __tablename__ = "artifacts"
    namespace: str = column(Text, key=True)
    sha256: str = column(Text, key=True)
    size_bytes: int = column(BigInteger)
    created_at: datetime = time_column(default="now()")
    used_at: datetime | None = time_column(null=True)


class TrainingRunRow(SQLModel, table=True):
    """Reports of one TrainingJob: its newest heartbeat and, once for each update, its proof."""

    __tablename__ = "training_runs"
    namespace: str = column(Text, key=True)
    job: str = column(Text, key=True)
    attempt: int | None = column(Integer, null=True)
    beat_at: datetime | None = time_column(null=True)
    heartbeat: dict[str, Any] | None = column(JSONB(none_as_null=True), null=True)
    received_at: datetime | None = time_column(null=True)
    proof: dict[str, Any] | None = column(JSONB(none_as_null=True), null=True)
    update_order: dict[str, Any] | None = column(JSONB(none_as_null=True), null=True)
    created_at: datetime = time_column(default="now()")


class ModelCheckpoint(SQLModel, table=True):
    """One durable checkpoint of a run; the newest two are kept."""

    __tablename__ = "model_checkpoints"
    __table_args__ = (
        ForeignKeyConstraint(
            ["namespace", "job"],
            ["training_runs.namespace", "training_runs.job"],
            ondelete="CASCADE",
            name="fk_checkpoints_run",
        ),
        Index("ix_checkpoints_job", "namespace", "job", "seq"),
    )
    namespace: str = column(Text, key=True)
    id: UUID = column(Uuid, key=True)
    seq: int = sequence_column()
    job: str = column(Text)
    training_iteration: int = column(BigInteger)
    sha256: str = column(Text)
    size_bytes: int = column(BigInteger)
    checkpoint_path: str = column(Text)
    created_at: datetime = time_column(default="now()")
    agent_id: str | None = column(Text, null=True)
    performance_metrics: dict[str, Any] = column(JSONB, default="'{}'")


def _of_episode(name: str) -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["namespace", "trajectory_id"],
        ["trajectories.namespace", "trajectories.trajectory_id"],
        ondelete="CASCADE",
        name=name,
    )


class TaskResultRow(SQLModel, table=True):
    """The wire.TaskResult of an episode, after redaction. `credited`: its reward is divided among its agents."""

    __tablename__ = "task_results"
    __table_args__ = (
        _of_episode("fk_results_trajectory"),
        Index("ix_results_uncredited", "namespace", "trajectory_id", postgresql_where=text("NOT credited")),
    )
    namespace: str = column(Text, key=True)
    trajectory_id: str = column(Text, key=True)
    task_type: str = column(Text)
    result: dict[str, Any] = column(JSONB)
    credited: bool = column(Boolean, default="false")


class TaskScore(SQLModel, table=True):
    """One component's score of an episode's output; `value` NULL: the evaluator has none, `note` says why."""

    __tablename__ = "task_scores"
    __table_args__ = (
        _of_episode("fk_scores_trajectory"),
        Index("ix_scores_newest", "namespace", "reward_policy", "reward_policy_revision", "scored_at"),
    )
    namespace: str = column(Text, key=True)
    trajectory_id: str = column(Text, key=True)
    reward_policy: str = column(Text, key=True)
    reward_policy_revision: str = column(Text, key=True)
    component: str = column(Text, key=True)
    value: float | None = column(Double, null=True)
    note: str = column(Text)
    scored_at: datetime = time_column(default="now()")


class TaskCredit(SQLModel, table=True):
    """One agent's part of the reward of a task that several agents worked on.

    `learned_reward` and `learned_credit` are what learners are given of it: before normalisation and bounds, without
    shaping, within the constraints.
    """

    __tablename__ = "task_credits"
    __table_args__ = (
        _of_episode("fk_credits_trajectory"),
        Index("ix_credits_agent", "namespace", "agent_id", "created_at"),
    )
    namespace: str = column(Text, key=True)
    trajectory_id: str = column(Text, key=True)
    agent_id: str = column(Text, key=True)
    raw_reward: float = column(Double)
    shaped_reward: float = column(Double)
    credit_assigned: float = column(Double)
    method: str = column(Text)
    task_type: str = column(Text)
    created_at: datetime = time_column(default="now()")
    learned_reward: float | None = column(Double, null=True)
    learned_credit: float | None = column(Double, null=True)
