"""Runs inside `alembic`: the connection comes from learnloop_dataplane.postgres.logins."""

from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext
from sqlmodel import SQLModel

from learnloop_dataplane.postgres import experience_tables, memory_tables, row_level_security
from learnloop_dataplane.postgres.logins import prepare_role

__all__ = ["experience_tables", "memory_tables", "row_level_security"]


def _grant(ctx: MigrationContext, step: Any, heads: Any, run_args: Any) -> None:
    """In the revision's own transaction: a new trigger must not meet a service that may not do what it does."""
    assert ctx.connection is not None
    prepare_role(ctx.connection)


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    transaction_per_migration=True,
    on_version_apply=_grant,
)
with context.begin_transaction():
    context.run_migrations()
