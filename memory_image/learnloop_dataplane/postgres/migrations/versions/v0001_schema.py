"""Creates the tables as the models say, and the partition that holds all steps until days have their own."""

from datetime import datetime, timedelta

import sqlalchemy as sa
from alembic import op
from sqlmodel import SQLModel

from learnloop_dataplane.postgres.partitions import FIRST_DAYS, SEAL, STEPS

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    connection = op.get_bind()
    op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    SQLModel.metadata.create_all(connection)
    # By the database's clock, which stamps the rows: this process's may be wrong.
    today: datetime = connection.execute(sa.text("SELECT date_trunc('day', now(), 'UTC')")).scalar_one()
    end = (today + timedelta(days=FIRST_DAYS)).isoformat()
    op.execute(f"CREATE TABLE {STEPS}_first PARTITION OF {STEPS} FOR VALUES FROM (MINVALUE) TO ('{end}')")
    op.execute(SEAL.format(name=f"{STEPS}_first"))


def downgrade() -> None:
    raise NotImplementedError("this is the first schema: drop the database instead")
