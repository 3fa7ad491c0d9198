"""What a reward and a checkpoint still say when the steps they came from are gone.

Columns without a default, or with a constant one: PostgreSQL writes them into its catalogue, not into the rows.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
ADDED = {
    "reward_history": ("task_id", "credit_assigned", "metadata"),
    "model_checkpoints": ("agent_id", "performance_metrics"),
}


def upgrade() -> None:
    op.add_column("reward_history", sa.Column("task_id", sa.Text(), nullable=True))
    op.add_column("reward_history", sa.Column("credit_assigned", sa.Double(), nullable=True))
    op.add_column("reward_history", _document("metadata"))
    op.add_column("model_checkpoints", sa.Column("agent_id", sa.Text(), nullable=True))
    op.add_column("model_checkpoints", _document("performance_metrics"))


def _document(name: str) -> sa.Column[dict[str, object]]:
    return sa.Column(name, JSONB(), server_default=sa.text("'{}'"), nullable=False)


def downgrade() -> None:
    for table, columns in ADDED.items():
        for name in columns:
            op.drop_column(table, name)
