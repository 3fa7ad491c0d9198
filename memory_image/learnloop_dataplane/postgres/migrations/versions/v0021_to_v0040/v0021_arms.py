"""Episodes by the arm that played them: rollouts are judged by what each revision's episodes earn."""

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

INDEX = """
CREATE INDEX ix_trajectories_arm ON trajectories (namespace, model_deployment, policy_revision, received_at)
WHERE model_deployment IS NOT NULL
"""


def upgrade() -> None:
    op.execute(INDEX)


def downgrade() -> None:
    op.drop_index("ix_trajectories_arm", table_name="trajectories")
