"""The index by age has only what the service wrote itself: nobody asks for the others by it, and they are the most."""

import sqlalchemy as sa

from learnloop_dataplane.postgres.migrations.online import create_index, drop_index

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None
COLUMNS = ["namespace", "source", "created_at"]


def upgrade() -> None:
    create_index("ix_memories_derived", "agent_memories", COLUMNS, postgresql_where=sa.text("source <> 'api'"))
    drop_index("ix_memories_created", "agent_memories")


def downgrade() -> None:
    create_index("ix_memories_created", "agent_memories", COLUMNS)
    drop_index("ix_memories_derived", "agent_memories")
