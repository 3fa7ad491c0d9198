"""An outbox for events; feedback of people, their opt-outs, and the key they are hashed with."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

ADDED = ("event_outbox", "user_keys", "user_opt_outs", "user_feedback")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _time(name: str, default: str | None, *, null: bool = False) -> sa.Column[object]:
    server = sa.text(default) if default else None
    return sa.Column(name, sa.DateTime(timezone=True), server_default=server, nullable=null)


def upgrade() -> None:
    op.create_table(
        "event_outbox",
        _text("namespace"),
        _text("message_id"),
        _text("subject"),
        _text("payload"),
        _time("created_at", "clock_timestamp()"),
        _time("published_at", None, null=True),
        sa.PrimaryKeyConstraint("namespace", "message_id"),
    )
    pending = sa.text("published_at IS NULL")
    op.create_index("ix_outbox_unpublished", "event_outbox", ["namespace", "created_at"], postgresql_where=pending)
    op.create_index("ix_outbox_subject", "event_outbox", ["namespace", "subject", "created_at"])
    op.create_index("ix_outbox_created", "event_outbox", ["namespace", "created_at"])
    op.create_table(
        "user_keys",
        _text("namespace"),
        sa.Column("key", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("namespace"),
    )
    op.create_table(
        "user_opt_outs",
        _text("namespace"),
        _text("user_hash"),
        _time("opted_out_at", "now()"),
        sa.PrimaryKeyConstraint("namespace", "user_hash"),
    )
    op.create_table(
        "user_feedback",
        _text("namespace"),
        _text("trajectory_id"),
        _text("user_hash"),
        sa.Column("value", sa.Double(), nullable=False),
        _time("given_at", "now()"),
        sa.Column("joined", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "trajectory_id", "user_hash"),
    )
    unjoined = sa.text("NOT joined")
    op.create_index("ix_feedback_unjoined", "user_feedback", ["namespace", "trajectory_id"], postgresql_where=unjoined)
    op.create_index("ix_feedback_user", "user_feedback", ["namespace", "user_hash"])
    op.create_index("ix_feedback_given", "user_feedback", ["namespace", "given_at"])
    for table in ADDED:
        rule = "namespace = current_setting('app.namespace', true)"
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY by_namespace ON {table} USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    raise RuntimeError("0005 cannot be undone: opt-outs and feedback would be lost; restore a backup")
