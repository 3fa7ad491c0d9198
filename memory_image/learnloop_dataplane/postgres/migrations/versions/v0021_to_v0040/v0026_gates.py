"""Reports of gate suites, and how candidates' gates ended."""

from datetime import datetime

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

TABLES = ("gate_reports", "gate_verdicts")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _time(name: str) -> sa.Column[datetime]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False)


def upgrade() -> None:
    op.create_table(
        "gate_reports",
        *map(_text, ("namespace", "job", "model_deployment", "sha256")),
        sa.Column("report", postgresql.JSONB(), nullable=True),
        _text("problem"),
        _time("received_at"),
        sa.PrimaryKeyConstraint("namespace", "job"),
    )
    op.create_index("ix_gate_reports_deployment", "gate_reports", ["namespace", "model_deployment", "received_at"])
    op.create_table(
        "gate_verdicts",
        *map(_text, ("namespace", "model_deployment", "revision")),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("verdict", postgresql.JSONB(), nullable=False),
        _time("judged_at"),
        sa.PrimaryKeyConstraint("namespace", "model_deployment", "revision", "started_at"),
    )
    rule = "namespace = current_setting('app.namespace', true)"
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY by_namespace ON {table} USING ({rule}) WITH CHECK ({rule})")


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
