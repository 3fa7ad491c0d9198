"""Memories with two times, provenance and use; recall by a packed scan; what recalls teach.

What was searched so far is worked out again in the background from the stored texts: `memory_pending` gets every id.
"""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import HALFVEC
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from learnloop_dataplane.postgres.migrations.online import create_index

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Namespace by namespace, as row-level security binds the owner of the table, too.
_REQUEUE = """
DO $$ DECLARE tenant record; BEGIN
    FOR tenant IN SELECT namespace FROM tenants LOOP
        PERFORM set_config('app.namespace', tenant.namespace, true);
        INSERT INTO memory_pending SELECT m.namespace, m.agent_id, m.id FROM agent_memories m
        WHERE m.namespace = tenant.namespace AND NOT EXISTS (SELECT 1 FROM memory_pending p
            WHERE p.namespace = m.namespace AND p.agent_id = m.agent_id AND p.memory_id = m.id);
    END LOOP;
END $$
"""
ADDED = ("memory_vec", "memory_pending", "memory_use", "recall_log", "memory_rankers", "memory_snapshots")


def _time(name: str, *, null: bool = False, default: str | None = None) -> sa.Column[object]:
    return sa.Column(
        name,
        sa.DateTime(timezone=True),
        server_default=sa.text(default) if default is not None else None,
        nullable=null,
    )


def upgrade() -> None:
    # First what takes long and stands in nobody's way; whatever of it a run that was cut off has done is passed over.
    _columns()
    _pending()
    _indexes()
    with op.get_context().autocommit_block():
        op.execute(_REQUEUE)
    _names()
    op.execute("DROP TABLE memory_vec")
    _narrow()
    _learning()
    op.execute(_REQUEUE)  # what came meanwhile
    for table in ADDED:
        rule = "namespace = current_setting('app.namespace', true)"
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY by_namespace ON {table} USING ({rule}) WITH CHECK ({rule})")
    op.execute("""
CREATE FUNCTION forget_with_memory() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    DELETE FROM memory_vec v USING gone g
        WHERE v.namespace = g.namespace AND v.agent_id = g.agent_id AND v.memory_id = g.id;
    DELETE FROM memory_pending p USING gone g
        WHERE p.namespace = g.namespace AND p.agent_id = g.agent_id AND p.memory_id = g.id;
    DELETE FROM memory_use u USING gone g WHERE u.namespace = g.namespace AND u.memory_id = g.id;
    RETURN NULL;
END $$
""")
    op.execute("""
CREATE TRIGGER forget_with_memory AFTER DELETE ON agent_memories REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION forget_with_memory()
""")


def _columns() -> None:
    credited: sa.Column[bool] = sa.Column("credited", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    op.add_column("trajectories", credited, if_not_exists=True)
    for column in (
        sa.Column("origin", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("provenance", JSONB(), nullable=True),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("pinned", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("state", sa.Text(), server_default=sa.text("'active'"), nullable=False),
        sa.Column("superseded_by", sa.Uuid(), nullable=True),
        _time("retired_at", null=True),
        _time("valid_from", null=True),
        _time("valid_to", null=True),
        _time("expires_at", null=True),
        _time("ends_at", default="'infinity'"),
    ):
        op.add_column("agent_memories", column, if_not_exists=True)


def _pending() -> None:
    op.create_table(
        "memory_pending",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "agent_id", "memory_id"),
        if_not_exists=True,
    )


def _indexes() -> None:
    create_index(
        "ix_trajectories_uncredited",
        "trajectories",
        ["namespace", "seq"],
        postgresql_where=sa.text("NOT credited AND reward IS NOT NULL AND retrieval_ids <> '[]'::jsonb"),
    )
    create_index(
        "uq_memories_idempotency_new",
        "agent_memories",
        ["namespace", "agent_id", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    create_index("ix_memories_agent_new", "agent_memories", ["namespace", "agent_id", "created_at", "id"])
    create_index(
        "ix_memories_origin",
        "agent_memories",
        ["namespace", "agent_id", "origin"],
        postgresql_where=sa.text("origin <> ''"),
    )
    create_index(
        "ix_memories_ends",
        "agent_memories",
        ["namespace", "ends_at"],
        postgresql_where=sa.text("ends_at < 'infinity'"),
    )


def _names() -> None:
    """The new indexes take the place of the old ones."""
    op.drop_constraint("uq_memories_idempotency", "agent_memories")
    op.drop_index("ix_memories_agent", "agent_memories")
    for name in ("uq_memories_idempotency", "ix_memories_agent"):
        op.execute(f"ALTER INDEX {name}_new RENAME TO {name}")


def _narrow() -> None:
    op.create_table(
        "memory_vec",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.Column("memory_type", sa.SmallInteger(), nullable=False),
        sa.Column("embedder", sa.Text(), nullable=True),
        sa.Column("importance", sa.REAL(), nullable=False),
        sa.Column("utility", sa.REAL(), server_default=sa.text("0"), nullable=False),
        sa.Column("thread", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        _time("created_at"),
        _time("visible_from"),
        _time("visible_to", default="'infinity'"),
        sa.Column("terms", sa.LargeBinary(), nullable=False),
        sa.Column("embedding", HALFVEC(), nullable=True),
        sa.PrimaryKeyConstraint("namespace", "agent_id", "memory_id"),
    )
    op.execute("ALTER TABLE memory_vec ALTER COLUMN embedding SET STORAGE PLAIN")


def _learning() -> None:
    op.create_table(
        "memory_use",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.Column("access_count", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        _time("last_accessed", null=True),
        sa.Column("helped", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.Column("hurt", sa.Double(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "memory_id"),
    )
    op.create_table(
        "recall_log",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("retrieval_id", sa.Uuid(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        _time("created_at", default="now()"),
        sa.Column("ranker", sa.Text(), nullable=False),
        sa.Column("shown", sa.SmallInteger(), nullable=False),
        sa.Column("memory_ids", ARRAY(sa.Uuid()), nullable=False),
        sa.Column("features", sa.LargeBinary(), nullable=False),
        sa.Column("propensities", ARRAY(sa.REAL()), nullable=False),
        sa.Column("reward", sa.Double(), nullable=True),
        _time("settled_at", null=True),
        sa.PrimaryKeyConstraint("namespace", "retrieval_id"),
    )
    op.create_index("ix_recall_log_created", "recall_log", ["namespace", "created_at"])
    op.create_index("ix_recall_log_agent", "recall_log", ["namespace", "agent_id", "created_at"])
    op.create_table(
        "memory_rankers",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("state", JSONB(), nullable=False),
        sa.Column("active", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        _time("updated_at", default="now()"),
        sa.PrimaryKeyConstraint("namespace", "agent_id"),
    )
    op.create_table(
        "memory_snapshots",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        _time("taken_at", default="now()"),
        _time("created_at", default="now()"),
        sa.PrimaryKeyConstraint("namespace", "agent_id", "name"),
    )


def downgrade() -> None:
    raise RuntimeError("0002 cannot be undone: what it dropped was derived, what it added is not; restore a backup")
