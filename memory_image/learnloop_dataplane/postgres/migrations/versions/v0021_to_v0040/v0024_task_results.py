"""Outputs of tasks, scores of evaluators, and the parts of the agents that took part."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

TABLES = ("task_results", "task_scores", "task_credits")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _number(name: str, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=nullable)


def _of_episode(name: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["namespace", "trajectory_id"],
        ["trajectories.namespace", "trajectories.trajectory_id"],
        ondelete="CASCADE",
        name=name,
    )


def upgrade() -> None:
    op.create_table(
        "task_results",
        _text("namespace"),
        _text("trajectory_id"),
        _text("task_type"),
        sa.Column("result", postgresql.JSONB(), nullable=False),
        sa.Column("credited", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "trajectory_id"),
        _of_episode("fk_results_trajectory"),
    )
    op.create_index(
        "ix_results_uncredited",
        "task_results",
        ["namespace", "trajectory_id"],
        postgresql_where=sa.text("NOT credited"),
    )
    op.create_table(
        "task_scores",
        *map(_text, ("namespace", "trajectory_id", "reward_policy", "reward_policy_revision", "component")),
        _number("value", nullable=True),
        _text("note"),
        sa.Column("scored_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "trajectory_id", "reward_policy", "reward_policy_revision", "component"),
        _of_episode("fk_scores_trajectory"),
    )
    op.create_table(
        "task_credits",
        *map(_text, ("namespace", "trajectory_id", "agent_id")),
        *map(_number, ("raw_reward", "shaped_reward", "credit_assigned", "error")),
        *map(_text, ("method", "team", "task_type")),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "trajectory_id", "agent_id"),
        _of_episode("fk_credits_trajectory"),
    )
    op.create_index("ix_credits_agent", "task_credits", ["namespace", "agent_id", "created_at"])
    rule = "namespace = current_setting('app.namespace', true)"
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY by_namespace ON {table} USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
