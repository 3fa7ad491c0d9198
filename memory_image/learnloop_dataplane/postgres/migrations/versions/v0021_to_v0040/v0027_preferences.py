"""Which of two answers people preferred."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "preferences",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("preference_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("user_hash", sa.Text(), nullable=True),
        sa.Column("sessions", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("body", postgresql.JSONB(), nullable=False),
        sa.Column("given_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "preference_id"),
    )
    op.create_index("ix_preferences_agent", "preferences", ["namespace", "agent_id", "seq"])
    op.create_index("ix_preferences_user", "preferences", ["namespace", "user_hash"])
    op.create_index("ix_preferences_given", "preferences", ["namespace", "given_at"])
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE preferences ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE preferences FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON preferences USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    op.drop_table("preferences")
