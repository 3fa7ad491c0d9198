"""A snapshot keeps what feedback had taught by then: the agent's ranker, and how much each memory had helped."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_ARRAYS = {"lesson_ids": sa.Uuid(), "helped": sa.Double(), "hurt": sa.Double()}


def upgrade() -> None:
    op.add_column("memory_snapshots", sa.Column("ranker", postgresql.JSONB(), nullable=True))
    for name, kind in _ARRAYS.items():
        op.add_column("memory_snapshots", sa.Column(name, postgresql.ARRAY(kind), nullable=True))


def downgrade() -> None:
    for name in ("ranker", *_ARRAYS):
        op.drop_column("memory_snapshots", name)
