"""Each migration from the one before it: rows of every table are there afterwards, with all that they said."""

import os
import re
import uuid
from collections import Counter
from itertools import pairwise
from typing import Any

import asyncpg
from alembic.script import ScriptDirectory

from learnloop_dataplane.postgres.migrate import alembic_config, migrate

from ..conftest import new_database, superuser

REVISIONS = [item.revision for item in ScriptDirectory.from_config(alembic_config()).walk_revisions()][::-1]
COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod)
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attidentity = ''
    AND c.relname <> 'alembic_version'
ORDER BY c.relname, a.attnum
"""
CHANGED = {
    ("0002", "memory_vec"): "begun anew: every memory is in memory_pending, to be indexed again",
    (
        "0004",
        "dead_letters",
    ): "its messages were cut to 4 KiB; whole ones lie in the stream RL_DEAD_LETTERS from here on",
}
"""Revision and table → why rows of before are not there as they were."""

Tables = dict[str, dict[str, str]]
"""Table → column → type."""


def literal(type_: str, revision: str) -> str:
    """A value of the type that tells the revision. All texts of one revision are equal, so that references hold."""
    number = int(revision)
    if type_.endswith("[]"):
        return "{}"
    if size := re.fullmatch(r"(?:half)?vec(?:tor)?(?:\((\d+)\))?", type_):
        return f"[{','.join(['0.25'] * int(size[1] or 1))}]"
    plain = {
        "boolean": "true",
        "bytea": f"\\x{number:04x}",
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, revision)),
        "jsonb": f'{{"revision": "{revision}"}}',
        "json": f'{{"revision": "{revision}"}}',
        "timestamp with time zone": f"2026-03-01 12:00:00.{number:03}+00",
        "date": "2026-03-01",
    }
    return plain.get(type_, f"r{revision}" if type_ == "text" or type_.startswith("character") else str(number))


async def tables(connection: asyncpg.Connection) -> Tables:
    found: Tables = {}
    for table, column, type_ in await connection.fetch(COLUMNS):
        found.setdefault(table, {})[column] = type_
    return found


async def put_rows(connection: asyncpg.Connection, revision: str) -> None:
    """One row more in every table. Those that refer to others come when these are there."""
    waiting = await tables(connection)
    while waiting:
        refused: dict[str, Exception] = {}
        for table, columns in waiting.items():
            values = ", ".join(f"'{literal(type_, revision)}'::{type_}" for type_ in columns.values())
            names = ", ".join(f'"{name}"' for name in columns)
            try:
                await connection.execute(f'INSERT INTO "{table}" ({names}) VALUES ({values}) ON CONFLICT DO NOTHING')
            except asyncpg.ForeignKeyViolationError as error:
                refused[table] = error
        assert len(refused) < len(waiting), refused
        waiting = {table: waiting[table] for table in refused}


async def rows(connection: asyncpg.Connection, table: str, columns: list[str]) -> Counter[str]:
    names = ", ".join(f'"{name}"' for name in sorted(columns))
    found = await connection.fetch(f'SELECT to_jsonb(x)::text FROM (SELECT {names} FROM "{table}") x')
    return Counter(str(row[0]) for row in found)


async def test_every_revision_keeps_what_the_one_before_it_stored(postgres: Any) -> None:
    dsn = new_database(postgres, f"walked_{os.getpid()}")
    missing: dict[tuple[str, str], Any] = {}
    seeded = 0
    await migrate(dsn, REVISIONS[0])
    for revision, following in pairwise(REVISIONS):
        async with superuser(dsn) as connection:
            await put_rows(connection, revision)
            before = await tables(connection)
            known = {table: await rows(connection, table, list(columns)) for table, columns in before.items()}
            seeded += sum(map(len, known.values()))
        await migrate(dsn, following)
        async with superuser(dsn) as connection:
            after = await tables(connection)
            for table, columns in before.items():
                same = sorted(columns.keys() & after.get(table, {}).keys())
                if not same:
                    missing[following, table] = "the table is gone"
                    continue
                now = await rows(connection, table, same)
                kept = await _narrowed(connection, known[table], same)
                if gone := kept - now:
                    missing[following, table] = next(iter(gone))[:300]
    assert seeded > 500, seeded
    unexplained = {key: value for key, value in missing.items() if key not in CHANGED}
    assert unexplained == {}
    assert set(CHANGED) <= set(missing), "a reason that nothing needs any more"


async def _narrowed(connection: asyncpg.Connection, was: Counter[str], columns: list[str]) -> Counter[str]:
    """The same rows with these columns alone, written as PostgreSQL writes them."""
    narrow = Counter[str]()
    query = "SELECT (SELECT jsonb_object_agg(key, value) FROM jsonb_each($1::jsonb) WHERE key = ANY($2))::text"
    for row, count in was.items():
        narrow[str(await connection.fetchval(query, row, columns))] += count
    return narrow
