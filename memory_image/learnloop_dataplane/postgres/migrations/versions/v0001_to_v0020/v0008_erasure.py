"""Who and what was erased, so that a replay does not bring it back."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def upgrade() -> None:
    time = sa.DateTime(timezone=True)
    op.create_table(
        "erasures",
        _text("namespace"),
        _text("subject"),
        sa.Column("erased_at", time, server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "subject"),
    )
    op.create_table(
        "erased_trajectories",
        _text("namespace"),
        _text("digest"),
        _text("subject"),
        sa.PrimaryKeyConstraint("namespace", "digest"),
    )
    op.create_index("ix_erased_subject", "erased_trajectories", ["namespace", "subject"])
    for table in ("erasures", "erased_trajectories"):
        rule = "namespace = current_setting('app.namespace', true)"
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY by_namespace ON {table} USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    raise RuntimeError("0008 cannot be undone: what was erased would come back with a replay; restore a backup")
