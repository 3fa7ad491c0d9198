"""Can one tenant see a row of another? A million adversarial queries say how many rows it saw.

    python -m bench.pipeline.tenancy [--statements 1000000] [--requests 10000] [--seed 1]

A victim's namespace has a row in every table that has a namespace (`victims_tables_empty` must be 0): by the API where
it fills one, else written by a superuser. Attackers own nothing, so any row they read or
change, and any answer with the mark in it, is a leak.

- statements: SQL by the service's own role and connection pool, under namespaces that resemble the victim's: without
  WHERE, by the victim's own ids, joined, sub-selected, updating and deleting, with metacharacters in every place.
- forged: for each table a whole row in the victim's name, inserted plainly, inserted where there is one already, and
  inserted in one's own name and then given away.
- requests: HTTP with tokens of another namespace, forged and expired tokens, forged namespaces in headers and queries,
  the victim's ids and metacharacters in paths, queries and bodies.

Real PostgreSQL, the product's code. The last line is one JSON object; `leaked` must be 0.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
from bench.memory.server import postgres
from bench.pipeline import forged, intruders, victim

from learnloop_memory.store.database import Database

BATCH = 250
NAMESPACES = ("red", "blu", "bluee", "blue-", "BLUE", "blue ", "%", "_lue", "blue' OR '1'='1", 'blue"', "blue;--", "")
READS = (
    "SELECT * FROM {table} WHERE $1::text IS NOT NULL LIMIT 3",
    "SELECT * FROM {table} WHERE namespace = $1 LIMIT 3",
    "SELECT * FROM {table} WHERE namespace LIKE $1 OR true LIMIT 3",
    "SELECT * FROM {table} WHERE namespace <> current_setting('app.namespace', true) OR namespace = $1 LIMIT 3",
    "SELECT t.* FROM tenants n LEFT JOIN {table} t ON t.namespace = n.namespace OR n.namespace = $1"
    " WHERE t.namespace IS NOT NULL LIMIT 3",
    "WITH a AS (SELECT * FROM {table}) SELECT * FROM a WHERE namespace = $1 OR a IS NOT NULL LIMIT 3",
    "SELECT * FROM (SELECT * FROM {table} UNION ALL SELECT * FROM {table}) u WHERE namespace >= '' OR namespace = $1",
    "SELECT $1::text FROM {table} WHERE EXISTS (SELECT 1 FROM {table} o WHERE o.namespace = 'blue') LIMIT 3",
    "SELECT row_to_json(t)::text FROM {table} t WHERE t::text LIKE '%' || $1 || '%' LIMIT 3",
)
WRITES = (
    "SELECT namespace FROM {table} WHERE namespace = ANY(ARRAY[$1, 'blue']) FOR UPDATE",
    "UPDATE {table} SET namespace = namespace WHERE namespace = $1 OR true RETURNING 1",
    "DELETE FROM {table} WHERE namespace = $1 OR true RETURNING 1",
    "INSERT INTO {table} (namespace) VALUES ('blue') RETURNING $1::text",
    "INSERT INTO {table} SELECT * FROM {table} WHERE $1::text IS NOT NULL RETURNING 1",
)


async def attack(
    db: Database,
    tables: list[str],
    statements: int,
    values: list[str],
    seed: int,
    tell: Callable[[int], None] = lambda _: None,
) -> Counter[str]:
    """Runs so many statements; counts leaks and what was refused.

    Each transaction is at one table, so that the connection has its statements at hand: twice as many in a second.

    Args:
        tell: called with how many more are done.
    """
    rng, counted = random.Random(seed), Counter[str]()
    done = 0
    while done < statements:
        some, table = min(BATCH, statements - done), rng.choice(tables)
        done += some
        async with db.tenant(rng.choice(NAMESPACES)) as connection:
            for _ in range(some):
                template = rng.choice(WRITES if rng.random() < 0.05 else READS)
                statement = template.format(table=table)
                counted += await _one(connection, statement, rng.choice(values), writes=template in WRITES)
        tell(some)
    return counted


class Progress:
    """Says every tenth of the way how far it is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0

    def __call__(self, more: int) -> None:
        before, self._done = self._done, self._done + more
        if self._done * 10 // self._total > before * 10 // self._total:
            print(f"[tenancy] {self._done:,} of {self._total:,} statements", file=sys.stderr, flush=True)


async def _one(connection: Any, statement: str, value: str, *, writes: bool) -> Counter[str]:
    try:
        if writes:
            async with connection.transaction():
                rows = await connection.fetch(statement, value)
        else:
            rows = await connection.fetch(statement, value)
    except (asyncpg.InsufficientPrivilegeError, asyncpg.IntegrityConstraintViolationError, asyncpg.PostgresSyntaxError):
        return Counter(statements=1, refused=1)
    except asyncpg.GeneratedAlwaysError:
        return Counter(statements=1, refused=1)
    if rows:
        print(f"leaked: {statement} {value!r}: {rows[0]}")
    return Counter(statements=1, leaked=len(rows))


async def measure(dsn: str, directory: Path, *, statements: int, requests: int, seed: int) -> dict[str, Any]:
    """Plants the victim's rows, lets the attackers at them, and looks whether all of them are still there."""
    connection = await asyncpg.connect(dsn)
    async with intruders.running(dsn, directory) as house:
        ids = await victim.plant(house)
        async with victim.complete(dsn) as before:
            tables = list(before)
            values = [*ids, *intruders.METACHARACTERS, "blue"]
            started = time.perf_counter()
            counted: Counter[str] = Counter()
            for table, row in (await forged.rows(connection, tables)).items():
                counted += await forged.forge(house.db, table, row)
            workers = 4
            shares = [statements // workers + (number < statements % workers) for number in range(workers)]
            progress = Progress(statements)
            sql_started = time.perf_counter()
            found = await asyncio.gather(
                *(attack(house.db, tables, some, values, seed + place, progress) for place, some in enumerate(shares))
            )
            counted += sum(found, Counter())
            sql_seconds = time.perf_counter() - sql_started
            counted += await intruders.attack(house, requests, ids, seed)
            after = await victim.held(connection)
    await connection.close()
    lost = {table: count for table, count in (before - after).items() if not victim.queue(table)}
    return {
        "statements": counted["statements"],
        "statements_refused": counted["refused"],
        "forged_writes": counted["forged"],
        "forged_writes_refused": counted["forged_refused"],
        "requests": counted["requests"],
        "requests_answered_2xx": counted["answered"],
        "leaked": counted["leaked"],
        "victims_rows": sum(before.values()),
        "victims_tables": sum(count > 0 for count in before.values()),
        "victims_tables_empty": sum(count == 0 for count in before.values()),
        "victims_rows_lost": sum(lost.values()),
        "seconds": round(time.perf_counter() - started, 1),
        "statements_per_second": round(statements / max(sql_seconds, 1e-9)),
    }


def main() -> int:
    """Exit code 1 when a row leaked or was lost, or a table had none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--statements", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as text, postgres() as server:
        server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf();")
        bounds = {"statements": options.statements, "requests": options.requests, "seed": options.seed}
        found = asyncio.run(measure(str(server.get_uri()), Path(text), **bounds))
    print(json.dumps(found))
    return int(found["leaked"] > 0 or found["victims_rows_lost"] > 0 or found["victims_tables_empty"] > 0)


if __name__ == "__main__":
    sys.exit(main())
