"""Rewards: min-max and rank normalisation, confidence, broken safety constraints."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("low", "high"):
        op.add_column("reward_statistics", sa.Column(name, sa.Double(), nullable=True))
    op.add_column(
        "reward_statistics", sa.Column("recent", ARRAY(sa.Double()), server_default=sa.text("'{}'"), nullable=False)
    )
    op.add_column("reward_history", sa.Column("confidence", sa.Double(), server_default=sa.text("1"), nullable=False))
    op.add_column("reward_history", sa.Column("violated", JSONB(), server_default=sa.text("'[]'"), nullable=False))
