"""Answers to requests that carry an Idempotency-Key, for a day."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("namespace", "key"),
    )
    op.create_index("ix_idempotency_claimed", "idempotency_keys", ["namespace", "claimed_at"])
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE idempotency_keys ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE idempotency_keys FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON idempotency_keys USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    op.drop_table("idempotency_keys")
