"""Row-level security: a transaction sees the rows of the namespace it named with `app.namespace`, and no others.

FORCE makes the rule hold for the tables' owner too; superusers bypass every policy, so the service works under the
role `learnloop_service`, which is neither. A statement without WHERE, or a forgotten one, cannot cross the border.
"""

from sqlalchemy import DDL, Table, event
from sqlmodel import SQLModel

from learnloop_memory.store import models
from learnloop_memory.store.facts import SETTING

__all__ = ["UNSCOPED", "listen", "models", "policy"]

UNSCOPED = ("tenants",)


def policy(table: str) -> list[str]:
    """The statements that put one table under the rule."""
    rule = f"namespace = current_setting('{SETTING}', true)"
    return [
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",
        f"CREATE POLICY by_namespace ON {table} USING ({rule}) WITH CHECK ({rule})",
    ]


def _after_create(table: Table) -> list[str]:
    statements = [] if table.name in UNSCOPED else policy(table.name)
    if table.name == "memory_vec":
        statements.append("ALTER TABLE memory_vec ALTER COLUMN embedding SET STORAGE PLAIN")
    return statements


def listen() -> None:
    """Makes `SQLModel.metadata.create_all` write what the migrations write."""
    for table in SQLModel.metadata.sorted_tables:
        for statement in _after_create(table):
            event.listen(table, "after_create", DDL(statement))  # type: ignore[no-untyped-call]


listen()
