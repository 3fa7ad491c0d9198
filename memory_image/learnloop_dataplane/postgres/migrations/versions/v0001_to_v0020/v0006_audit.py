"""The audit chain: records that wait, records in their place, signatures over the chain."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

ADDED = ("audit_pending", "audit_log", "audit_checkpoints")
REFUSE_CHANGE = """
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'insufficient_privilege';
END $$
"""


def _text(name: str, default: str | None = None) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), server_default=sa.text(default) if default else None, nullable=False)


def _time(name: str, default: str | None = None) -> sa.Column[object]:
    server = sa.text(default) if default else None
    return sa.Column(name, sa.DateTime(timezone=True), server_default=server, nullable=False)


def upgrade() -> None:
    op.create_table(
        "audit_pending",
        _text("namespace"),
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        _time("at", "clock_timestamp()"),
        _text("actor"),
        _text("action"),
        _text("subject"),
        _text("outcome", "'done'"),
        sa.Column("detail", JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "id"),
    )
    op.create_table(
        "audit_log",
        _text("namespace"),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        _time("at"),
        _text("actor"),
        _text("action"),
        _text("subject"),
        _text("outcome"),
        sa.Column("detail", JSONB(), nullable=False),
        sa.Column("previous", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "seq"),
    )
    op.create_table(
        "audit_checkpoints",
        _text("namespace"),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        _time("at"),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("public_key", sa.LargeBinary(), nullable=False),
        sa.Column("signature", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "seq"),
    )
    for table in ADDED:
        rule = "namespace = current_setting('app.namespace', true)"
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY by_namespace ON {table} USING ({rule}) WITH CHECK ({rule})")
    op.execute(REFUSE_CHANGE)
    for table in ("audit_log", "audit_checkpoints"):
        op.execute(
            f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change()"
        )


def downgrade() -> None:
    raise RuntimeError("0006 cannot be undone: the audit chain is append-only; restore a backup")
