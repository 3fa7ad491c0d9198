"""When an agent did not have a memory that came back."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_FORGET = """
CREATE OR REPLACE FUNCTION forget_with_memory() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    DELETE FROM memory_vec v USING gone g
        WHERE v.namespace = g.namespace AND v.agent_id = g.agent_id AND v.memory_id = g.id;
    DELETE FROM memory_pending p USING gone g
        WHERE p.namespace = g.namespace AND p.agent_id = g.agent_id AND p.memory_id = g.id;
    DELETE FROM memory_use u USING gone g WHERE u.namespace = g.namespace AND u.memory_id = g.id;
    DELETE FROM memory_words w USING gone g
        WHERE w.namespace = g.namespace AND w.agent_id = g.agent_id AND w.memory_id = g.id;{absences}
    RETURN NULL;
END $$
"""
_ABSENCES = """
    DELETE FROM memory_absences a USING gone g WHERE a.namespace = g.namespace AND a.memory_id = g.id;"""


def upgrade() -> None:
    op.create_table(
        "memory_absences",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "memory_id", "since"),
    )
    rule = "namespace = current_setting('app.namespace', true)"
    op.execute("ALTER TABLE memory_absences ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE memory_absences FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY by_namespace ON memory_absences USING ({rule}) WITH CHECK ({rule})")
    op.execute(_FORGET.format(absences=_ABSENCES))


def downgrade() -> None:
    op.execute(_FORGET.format(absences=""))
    op.drop_table("memory_absences")
