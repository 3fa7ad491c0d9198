"""When each agent's memory was last consolidated."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "memory_consolidations",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("consolidated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "agent_id"),
    )
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE memory_consolidations ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE memory_consolidations FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON memory_consolidations USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    op.drop_table("memory_consolidations")
