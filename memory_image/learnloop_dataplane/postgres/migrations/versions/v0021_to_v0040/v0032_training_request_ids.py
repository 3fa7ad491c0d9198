"""Which requests for training an agent has had: one that is sent again after another one asks for nothing."""

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE agents ADD COLUMN IF NOT EXISTS training_request_ids text[] NOT NULL DEFAULT '{}'")


def downgrade() -> None:
    op.execute("ALTER TABLE agents DROP COLUMN IF EXISTS training_request_ids")
