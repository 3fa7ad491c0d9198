"""Each narrow row names what cut its text into terms, so that rows of another analyzer are found and cut again.

Rows from before have none: they are cut again in the background while recall goes on. Until then a word finds them that
has no ending to lose.
"""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("memory_vec", sa.Column("analyzer", sa.Text))


def downgrade() -> None:
    op.drop_column("memory_vec", "analyzer")
