"""Which episodes the warehouse has, and what it has yet to delete."""

import sqlalchemy as sa
from alembic import op

from learnloop_dataplane.postgres.migrations.online import create_index

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A constant default is written into the catalogue only: no row is touched.
    waiting: sa.Column[bool] = sa.Column("warehoused", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    op.add_column("trajectories", waiting, if_not_exists=True)
    unshipped = sa.text("NOT warehoused")
    create_index("ix_trajectories_unwarehoused", "trajectories", ["namespace", "seq"], postgresql_where=unshipped)
    op.create_table(
        "warehouse_erasures",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("attribute", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("namespace", "id"),
    )
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE warehouse_erasures ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE warehouse_erasures FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON warehouse_erasures USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    raise RuntimeError("0007 cannot be undone: erasures the warehouse has not made yet would be lost; restore a backup")
