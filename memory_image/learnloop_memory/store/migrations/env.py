"""Runs inside `alembic`: the connection comes from learnloop_memory.store.migrate."""

from alembic import context
from sqlmodel import SQLModel

from learnloop_memory.store import memory_models, models, rls

__all__ = ["memory_models", "models", "rls"]

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=SQLModel.metadata)
with context.begin_transaction():
    context.run_migrations()
