"""Runs inside `alembic`: the connection comes from learnloop_memory.store.migrate."""

from alembic import context
from sqlmodel import SQLModel

from learnloop_memory.store import models, rls

__all__ = ["models", "rls"]

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=SQLModel.metadata)
with context.begin_transaction():
    context.run_migrations()
