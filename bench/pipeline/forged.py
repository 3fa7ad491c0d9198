"""Writes without a right, into another tenant's name: whole rows, so that only the rule can refuse them."""

import json
from collections import Counter
from typing import Any

import asyncpg

from bench.pipeline.intruders import VICTIM
from learnloop_dataplane.postgres.database import Database

STRANGER = "red"
# As the victim's row, with other values where told.
INSERT = """
INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE
SELECT {columns} FROM jsonb_populate_record(NULL::{table}, $1::jsonb || jsonb_build_object('namespace', $2::text))
"""
GIVE_AWAY = "UPDATE {table} SET namespace = $1"


async def rows(connection: Any, tables: list[str]) -> dict[str, str]:
    """One of the victim's rows of each table, as JSON, less generated columns; `connection` is a superuser's."""
    statement = """
    SELECT (to_jsonb(t) - ARRAY(
        SELECT attname::text FROM pg_attribute WHERE attrelid = '{table}'::regclass AND attgenerated <> ''
    ))::text FROM {table} t WHERE namespace = $1 LIMIT 1"""
    return {table: await connection.fetchval(statement.format(table=table), VICTIM) for table in tables}


async def forge(db: Database, table: str, row: str) -> Counter[str]:
    """Inserts the victim's row, plainly and where there is one already, and gives one's own row to the victim.

    Nothing is kept. `forged` counts what was tried, `leaked` what was not refused by the rule. A row that refers to
    one of the victim's cannot be had in another's name at all; then there is nothing to give away.
    """
    columns = ", ".join(f'"{name}"' for name in json.loads(row))
    plain = INSERT.format(table=table, columns=columns)
    tried = [
        ((plain, row, VICTIM),),
        ((f"{plain} ON CONFLICT DO NOTHING RETURNING 1", row, VICTIM),),
        ((plain, row, STRANGER), (GIVE_AWAY.format(table=table), VICTIM)),
    ]
    counted: Counter[str] = Counter()
    for statements in tried:
        counted["forged"] += 1
        async with db.tenant(STRANGER) as connection:
            trial = connection.transaction()
            await trial.start()
            try:
                for statement in statements:
                    await connection.execute(*statement)
            except (asyncpg.InsufficientPrivilegeError, asyncpg.ForeignKeyViolationError):
                counted["forged_refused"] += 1
            except asyncpg.PostgresError as error:  # of a row that was there already, say: the rule had let it pass
                counted["leaked"] += 1
                print(f"leaked: {statements[-1][0]} into {table} was refused by something else: {error}")
            else:
                counted["leaked"] += 1
                print(f"leaked: {statements[-1][0]} into {table}")
            finally:
                await trial.rollback()
    return counted
