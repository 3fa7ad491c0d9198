"""What each agent may keep, and what it keeps."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def _number(name: str, default: str | None = None) -> sa.Column[int]:
    return sa.Column(
        name, sa.BigInteger(), server_default=sa.text(default) if default else None, nullable=default is None
    )


def upgrade() -> None:
    op.create_table(
        "memory_budgets",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("own", JSONB(), nullable=True),
        _number("memories"),
        _number("bytes"),
        _number("pinned"),
        sa.Column("pinned_above", ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        _number("forgotten", "0"),
        _number("last_forgotten", "0"),
        sa.Column("last_forgotten_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("namespace", "agent_id"),
    )
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE memory_budgets ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE memory_budgets FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON memory_budgets USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    op.drop_table("memory_budgets")
