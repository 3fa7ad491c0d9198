"""Up to which snapshot a vector store beside PostgreSQL has taken in each agent's memories."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def upgrade() -> None:
    op.create_table(
        "memory_copies",
        _text("namespace"),
        _text("agent_id"),
        _text("collection"),
        _text("snapshot"),
        sa.Column("followed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "agent_id"),
    )
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE memory_copies ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE memory_copies FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON memory_copies USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    op.drop_table("memory_copies")
