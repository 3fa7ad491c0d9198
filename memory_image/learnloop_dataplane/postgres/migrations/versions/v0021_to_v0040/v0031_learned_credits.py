"""What each agent of a team learns from a task's reward. Divisions from before have none: agents learn as they did."""

import sqlalchemy as sa
from alembic import op

from learnloop_dataplane.postgres.migrations.online import create_index, drop_index

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

NAME, TABLE = "ix_trajectories_joint", "trajectories"
TASK = sa.text("(labels ->> 'joint_task')")


def upgrade() -> None:
    for name in ("learned_reward", "learned_credit"):
        op.execute(f"ALTER TABLE task_credits ADD COLUMN IF NOT EXISTS {name} double precision")
    create_index(NAME, TABLE, ["namespace", TASK], postgresql_where=sa.text("(labels ->> 'joint_task') IS NOT NULL"))


def downgrade() -> None:
    drop_index(NAME, TABLE)
    for name in ("learned_credit", "learned_reward"):
        op.execute(f"ALTER TABLE task_credits DROP COLUMN IF EXISTS {name}")
