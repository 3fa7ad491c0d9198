"""Whole training requests, and what serves at each ModelDeployment."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("agents", sa.Column("training_wish", sa.Text(), nullable=True))
    op.create_table(
        "served_models",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("model_deployment", sa.Text(), nullable=False),
        sa.Column("serving", sa.Text(), nullable=True),
        sa.Column("taken_back", sa.Text(), nullable=True),
        sa.Column("told_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "model_deployment"),
    )
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE served_models ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE served_models FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON served_models USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    op.drop_table("served_models")
    op.drop_column("agents", "training_wish")
