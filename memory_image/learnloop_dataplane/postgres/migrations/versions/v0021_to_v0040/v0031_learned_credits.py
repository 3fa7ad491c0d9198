"""What each agent of a team learns from a task's reward. Divisions from before have none: agents learn as they did."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

INDEX = """
CREATE INDEX ix_trajectories_joint ON trajectories (namespace, (labels ->> 'joint_task'))
WHERE (labels ->> 'joint_task') IS NOT NULL
"""


def upgrade() -> None:
    for name in ("learned_reward", "learned_credit"):
        op.add_column("task_credits", sa.Column(name, sa.Double(), nullable=True))
    op.execute(INDEX)


def downgrade() -> None:
    op.drop_index("ix_trajectories_joint", table_name="trajectories")
    for name in ("learned_credit", "learned_reward"):
        op.drop_column("task_credits", name)
