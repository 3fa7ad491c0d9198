"""Creates the tables as the models say."""

from alembic import op
from sqlmodel import SQLModel

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    SQLModel.metadata.create_all(op.get_bind())


def downgrade() -> None:
    raise NotImplementedError("this is the first schema: drop the database instead")
