"""What an agent saw after the last step of an episode. Episodes from before have none: nobody recorded it."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("training_transitions", sa.Column("last_observation", postgresql.JSONB(), nullable=True))


def downgrade() -> None:
    op.drop_column("training_transitions", "last_observation")
