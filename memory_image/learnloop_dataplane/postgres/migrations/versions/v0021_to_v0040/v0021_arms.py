"""Episodes by the arm that played them: rollouts are judged by what each revision's episodes earn."""

import sqlalchemy as sa

from learnloop_dataplane.postgres.migrations.online import create_index, drop_index

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

NAME, TABLE = "ix_trajectories_arm", "trajectories"
COLUMNS = ["namespace", "model_deployment", "policy_revision", "received_at"]


def upgrade() -> None:
    create_index(NAME, TABLE, COLUMNS, postgresql_where=sa.text("model_deployment IS NOT NULL"))


def downgrade() -> None:
    drop_index(NAME, TABLE)
