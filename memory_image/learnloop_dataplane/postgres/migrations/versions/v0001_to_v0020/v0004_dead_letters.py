"""Refused messages live in the JetStream stream RL_DEAD_LETTERS, whole and ready to be replayed.

The rows of the old table were cut to 4 KiB and could not be sent again, so none is carried over.
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_table("dead_letters")


def downgrade() -> None:
    raise RuntimeError("0004 cannot be undone: the old table's rows are gone; restore a backup")
