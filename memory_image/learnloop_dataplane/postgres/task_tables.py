"""What came of tasks, what evaluators made of it, and how rewards were divided among agents, as sqlmodel classes.

All of it belongs to an episode and goes with it.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import Boolean, Double, ForeignKeyConstraint, Index, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlmodel import SQLModel

from learnloop_dataplane.postgres.column_types import column as _column
from learnloop_dataplane.postgres.column_types import time_column as _time


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
    namespace: str = _column(Text, key=True)
    trajectory_id: str = _column(Text, key=True)
    task_type: str = _column(Text)
    result: dict[str, Any] = _column(JSONB)
    credited: bool = _column(Boolean, default="false")


class TaskScore(SQLModel, table=True):
    """What one component's evaluator made of an episode's output; `value` NULL: it could not tell, `note` says why."""

    __tablename__ = "task_scores"
    __table_args__ = (
        _of_episode("fk_scores_trajectory"),
        Index("ix_scores_newest", "namespace", "reward_policy", "reward_policy_revision", "scored_at"),
    )
    namespace: str = _column(Text, key=True)
    trajectory_id: str = _column(Text, key=True)
    reward_policy: str = _column(Text, key=True)
    reward_policy_revision: str = _column(Text, key=True)
    component: str = _column(Text, key=True)
    value: float | None = _column(Double, null=True)
    note: str = _column(Text)
    scored_at: datetime = _time(default="now()")


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
    namespace: str = _column(Text, key=True)
    trajectory_id: str = _column(Text, key=True)
    agent_id: str = _column(Text, key=True)
    raw_reward: float = _column(Double)
    shaped_reward: float = _column(Double)
    credit_assigned: float = _column(Double)
    error: float = _column(Double)
    method: str = _column(Text)
    team: str = _column(Text)
    task_type: str = _column(Text)
    created_at: datetime = _time(default="now()")
    learned_reward: float | None = _column(Double, null=True)
    learned_credit: float | None = _column(Double, null=True)
