"""Runs inside `alembic`: the connection comes from learnloop_dataplane.postgres.logins."""

from alembic import context
from alembic.runtime.migration import MigrationContext
from sqlmodel import SQLModel

from learnloop_dataplane.postgres import experience_tables, logins, memory_tables, row_level_security

__all__ = ["experience_tables", "memory_tables", "row_level_security"]


def _grant(ctx: MigrationContext, step: object, heads: object, run_args: object) -> None:
    """In the revision's own transaction: a new trigger must not meet a service that may not do what it does."""
    assert ctx.connection is not None
    logins.prepare_role(ctx.connection)


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=SQLModel.metadata,
    transaction_per_migration=True,
    on_version_apply=_grant,
)
with context.begin_transaction():
    context.run_migrations()
