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

from bench.pipeline import forged, intruders, victim
from learnloop_dataplane.postgres.database import Database
from testing.servers.data_plane_process import postgres

BATCH, AT_ONCE = 250, 25
WRITES_SHARE = 0.05
WORKERS = 4
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

    Each transaction is at one table, so that the connection has its statements at hand: twice as many in a second. Of
    the reads each template goes out with 25 values together, each an execution of its own: three times as many again.

    Args:
        tables: those that a tenant's login may name.
        tell: called with how many more are done.
    """
    rng, counted = random.Random(seed), Counter[str]()
    done = 0
    while done < statements:
        some, table = min(BATCH, statements - done), rng.choice(tables)
        done += some
        async with db.tenant(rng.choice(NAMESPACES)) as connection:
            for template, count in _turns(rng, some):
                tried = rng.choices(values, k=count)
                refusable = template in WRITES
                counted += await _tried(connection, template.format(table=table), tried, refusable=refusable)
        tell(some)
    return counted


def shares(total: int) -> list[int]:
    """The share of each worker, of as many as keep two cores busy."""
    return [total // WORKERS + (number < total % WORKERS) for number in range(WORKERS)]


class Progress:
    """Says every tenth of the way how far it is."""

    def __init__(self, total: int, things: str) -> None:
        self._total = total
        self._things = things
        self._done = 0

    def __call__(self, more: int) -> None:
        before, self._done = self._done, self._done + more
        if self._done * 10 // self._total > before * 10 // self._total:
            print(f"[tenancy] {self._done:,} of {self._total:,} {self._things}", file=sys.stderr, flush=True)


def _turns(rng: random.Random, statements: int) -> list[tuple[str, int]]:
    """So many statements in any order: each write by itself, reads up to `AT_ONCE` of a template."""
    writes = sum(rng.random() < WRITES_SHARE for _ in range(statements))
    reads = statements - writes
    groups = [AT_ONCE] * (reads // AT_ONCE) + [reads % AT_ONCE] * (reads % AT_ONCE > 0)
    turns = [(rng.choice(WRITES), 1) for _ in range(writes)] + [(rng.choice(READS), count) for count in groups]
    rng.shuffle(turns)
    return turns


async def _tried(connection: Any, statement: str, values: list[str], *, refusable: bool) -> Counter[str]:
    """The statement with each of the values. One that is refused though it is not `refusable` ends the bench."""
    try:
        if refusable:
            async with connection.transaction():
                rows = await connection.fetchmany(statement, [(value,) for value in values])
        else:
            rows = await connection.fetchmany(statement, [(value,) for value in values])
    except (
        asyncpg.InsufficientPrivilegeError,
        asyncpg.IntegrityConstraintViolationError,
        asyncpg.PostgresSyntaxError,
        asyncpg.GeneratedAlwaysError,
    ):
        return Counter(statements=len(values), refused=len(values))
    if rows:
        print(f"leaked: {statement} {values!r}: {rows[0]}")
    return Counter(statements=len(values), leaked=len(rows))


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
            progress = Progress(statements, "statements")
            sql_started = time.perf_counter()
            results = await asyncio.gather(
                *(
                    attack(house.db, tables, some, values, seed + place, progress)
                    for place, some in enumerate(shares(statements))
                )
            )
            counted += sum(results, Counter())
            sql_seconds = time.perf_counter() - sql_started
            request_progress = Progress(requests, "requests")
            results = await asyncio.gather(
                *(
                    intruders.attack(house, some, ids, seed + place, request_progress)
                    for place, some in enumerate(shares(requests))
                )
            )
            counted += sum(results, Counter())
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
        "tables_that_lost_rows": sorted(lost),
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
        result = asyncio.run(measure(str(server.get_uri()), Path(text), **bounds))
    print(json.dumps(result))
    return int(result["leaked"] > 0 or result["victims_rows_lost"] > 0 or result["victims_tables_empty"] > 0)


if __name__ == "__main__":
    sys.exit(main())
