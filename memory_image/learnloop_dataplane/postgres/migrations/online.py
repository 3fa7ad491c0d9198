"""Indexes on tables in use: built beside the writers, not in front of them."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

_INVALID = "SELECT EXISTS(SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(:name) AND NOT indisvalid)"


def create_index(name: str, table: str, columns: Sequence[str | sa.TextClause], **options: Any) -> None:
    """CREATE INDEX CONCURRENTLY, unless a run of this revision that was cut off has built it already.

    What the revision did before is committed, so each such step must pass a second time, too. A build that is
    cut off leaves an invalid index behind, which costs every writer and helps no reader: it is dropped and built anew.
    """
    with op.get_context().autocommit_block():
        # Neither a build nor its wait stands in a writer's way: it may wait for the oldest transaction there is.
        op.execute("SET lock_timeout = 0")
        if op.get_bind().execute(sa.text(_INVALID), {"name": name}).scalar():
            op.drop_index(name, table, postgresql_concurrently=True, if_exists=True)
        op.create_index(name, table, list(columns), postgresql_concurrently=True, if_not_exists=True, **options)
        op.execute("RESET lock_timeout")


def drop_index(name: str, table: str) -> None:
    """DROP INDEX CONCURRENTLY, unless it is gone already; what stands above holds of it, too."""
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")
        op.drop_index(name, table, postgresql_concurrently=True, if_exists=True)
        op.execute("RESET lock_timeout")
