"""What receivers are still to be told, and what they were told of late."""

from datetime import datetime

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def _time(name: str, default: str | None = None) -> sa.Column[datetime]:
    server_default = sa.text(default) if default else None
    return sa.Column(name, sa.DateTime(timezone=True), server_default=server_default, nullable=default is None)


def upgrade() -> None:
    op.create_table(
        "notifications",
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("namespace", "message_id", "receiver")),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("event", "payload")),
        _time("created_at", "clock_timestamp()"),
        _time("next_at", "clock_timestamp()"),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        _time("delivered_at"),
        _time("given_up_at"),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("namespace", "message_id", "receiver"),
    )
    due = sa.text("delivered_at IS NULL AND given_up_at IS NULL")
    op.create_index("ix_notifications_due", "notifications", ["namespace", "next_at"], postgresql_where=due)
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE notifications ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE notifications FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON notifications USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    op.drop_table("notifications")
