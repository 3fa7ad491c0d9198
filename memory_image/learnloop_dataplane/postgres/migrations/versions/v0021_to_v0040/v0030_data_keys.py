"""Keys that seal experience and artifacts, wrapped by those of a Secret."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    created = sa.Column(
        "created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
    )
    op.create_table(
        "data_keys",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("namespace", "agent_id", "user_hash")),
        sa.Column("key_id", sa.Uuid(), nullable=False),
        sa.Column("wrapping_key", sa.Text(), nullable=False),
        sa.Column("wrapped", sa.LargeBinary(), nullable=False),
        created,
        sa.PrimaryKeyConstraint("namespace", "agent_id", "user_hash"),
    )
    op.create_index("ix_data_keys_id", "data_keys", ["namespace", "key_id"], unique=True)
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE data_keys ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE data_keys FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON data_keys USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    op.drop_table("data_keys")
