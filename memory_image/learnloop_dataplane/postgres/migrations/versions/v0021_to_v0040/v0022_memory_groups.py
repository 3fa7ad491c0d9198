"""The group of agents that an agent recalls with."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agents", sa.Column("memory_group", sa.Text))


def downgrade() -> None:
    op.drop_column("agents", "memory_group")
