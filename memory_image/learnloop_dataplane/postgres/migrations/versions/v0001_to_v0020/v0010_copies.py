"""Which transaction changed a memory last, and where some were deleted: copies in processes stay true by it."""

import sqlalchemy as sa
from alembic import op

from learnloop_dataplane.postgres.column_types import Xid8
from learnloop_dataplane.postgres.migrations.online import create_index

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def _changed() -> sa.Column[str]:
    return sa.Column("changed", Xid8(), server_default=sa.text("pg_current_xact_id()"), nullable=False)


def upgrade() -> None:
    # A default that is the same for the whole statement is written into the catalogue only: no row is touched.
    op.add_column("memory_vec", _changed(), if_not_exists=True)
    create_index("ix_memory_vec_changed", "memory_vec", ["namespace", "agent_id", "changed"])
    op.create_table(
        "memory_gone",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        _changed(),
        sa.Column("gone_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "agent_id", "changed"),
    )
    op.create_index("ix_memory_gone_at", "memory_gone", ["namespace", "gone_at"])
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE memory_gone ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE memory_gone FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON memory_gone USING ({rule}) WITH CHECK ({rule})")
    op.execute("""
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    NEW.changed := pg_current_xact_id();
    RETURN NEW;
END $$
""")
    op.execute("""
CREATE TRIGGER note_change BEFORE UPDATE ON memory_vec FOR EACH ROW EXECUTE FUNCTION note_change()
""")
    op.execute("""
CREATE FUNCTION note_gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO memory_gone (namespace, agent_id) SELECT DISTINCT namespace, agent_id FROM gone ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$
""")
    op.execute("""
CREATE TRIGGER note_gone AFTER DELETE ON memory_vec REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION note_gone()
""")


def downgrade() -> None:
    op.execute("DROP TRIGGER note_gone ON memory_vec")
    op.execute("DROP TRIGGER note_change ON memory_vec")
    op.execute("DROP FUNCTION note_gone")
    op.execute("DROP FUNCTION note_change")
    op.drop_table("memory_gone")
    op.drop_index("ix_memory_vec_changed", "memory_vec")
    op.drop_column("memory_vec", "changed")
