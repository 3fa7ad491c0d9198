"""The words of large agents' memories, found by equality."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_FORGET = """
CREATE OR REPLACE FUNCTION forget_with_memory() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    DELETE FROM memory_vec v USING gone g
        WHERE v.namespace = g.namespace AND v.agent_id = g.agent_id AND v.memory_id = g.id;
    DELETE FROM memory_pending p USING gone g
        WHERE p.namespace = g.namespace AND p.agent_id = g.agent_id AND p.memory_id = g.id;
    DELETE FROM memory_use u USING gone g WHERE u.namespace = g.namespace AND u.memory_id = g.id;{words}
    RETURN NULL;
END $$
"""
_WORDS = """
    DELETE FROM memory_words w USING gone g
        WHERE w.namespace = g.namespace AND w.agent_id = g.agent_id AND w.memory_id = g.id;"""


def upgrade() -> None:
    op.create_table(
        "memory_words",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.Column("word", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "agent_id", "memory_id", "word"),
    )
    op.create_index("ix_memory_words", "memory_words", ["namespace", "agent_id", "word"])
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE memory_words ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE memory_words FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON memory_words USING ({rule}) WITH CHECK ({rule})")
    op.execute(_FORGET.format(words=_WORDS))


def downgrade() -> None:
    op.execute(_FORGET.format(words=""))
    op.drop_table("memory_words")
