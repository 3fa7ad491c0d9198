"""The statements that a part of the product sends to PostgreSQL, and how much each of them reads.

A statement is explained as the product's pool runs it: prepared, with the plan that its settings ask for, under the
service's role and row-level security. Its effect is rolled back.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import orjson
import pytest

from learnloop_dataplane.postgres import database
from learnloop_dataplane.postgres.row_level_security import SETTING

SECONDS = 20.0
"""For one explained statement."""
_NUMBERS = count()
_EXPLAINED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


@dataclass(frozen=True)
class Cost:
    """The reads of one run of a statement: rows that scans looked at, and pages."""

    rows: int
    pages: int
    plan: str


@dataclass
class Statements:
    """The statements since `during` began, by name: each different statement once, with the arguments it came with."""

    plans: dict[str, dict[str, tuple[Any, ...]]] = field(default_factory=dict)
    name: str = "background"

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        """Files what is sent meanwhile under this name."""
        before, self.name = self.name, name
        try:
            yield
        finally:
            self.name = before

    def note(self, query: Any) -> None:
        """Called by asyncpg for each statement."""
        text = query.query.strip()
        if text.upper().startswith(_EXPLAINED) and "set_config('app.namespace'" not in text[:40]:
            arguments = list(query.args)
            if arguments and isinstance(arguments[0], tuple):  # the rows of executemany
                arguments = list(arguments[0])
            if arguments or "$1" not in text:
                self.plans.setdefault(self.name, {}).setdefault(text, tuple(arguments))


def recorded(patch: pytest.MonkeyPatch) -> Statements:
    """Records what every connection of a pool that is opened from now on sends."""
    statements, prepare = Statements(), database._prepare

    async def prepare_and_record(connection: Any) -> None:
        await prepare(connection)
        connection.add_query_logger(statements.note)

    patch.setattr(database, "_prepare", prepare_and_record)
    return statements


async def cost(connection: Any, namespace: str, statement: str, arguments: tuple[Any, ...]) -> Cost:
    """Runs a statement on a connection of the product's pool and rolls it back."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(f"SELECT set_config('{SETTING}', $1, true)", namespace)
        types = [one.name for one in (await connection.prepare(statement)).get_parameters()]
        given = [await _literal(connection, kind, value) for kind, value in zip(types, arguments, strict=True)]
        name = f"measured_{next(_NUMBERS)}"
        await connection.execute(f"PREPARE {name} AS {statement}")
        run = f"EXECUTE {name}({', '.join(given)})" if given else f"EXECUTE {name}"
        [[answer]] = await connection.fetch(
            f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {run}", timeout=SECONDS
        )
    finally:
        await transaction.rollback()
    [explained] = orjson.loads(answer)
    plan = explained["Plan"]
    pages = plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0)
    return Cost(sum(_scanned(plan)), pages, _summary(plan))


async def _literal(connection: Any, kind: str, value: Any) -> str:
    return str(await connection.fetchval(f"SELECT quote_nullable($1::{kind}::text)", value))


def _walk(plan: dict[str, Any], visit: Callable[[dict[str, Any]], Any]) -> Iterator[Any]:
    yield visit(plan)
    for part in plan.get("Plans", []):
        yield from _walk(part, visit)


def _scanned(plan: dict[str, Any]) -> Iterator[int]:
    def rows(node: dict[str, Any]) -> int:
        if "Scan" not in node["Node Type"] or node["Node Type"] in ("CTE Scan", "Subquery Scan", "Function Scan"):
            return 0
        removed = sum(node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck"))
        return int((node["Actual Rows"] + removed) * node["Actual Loops"])

    return _walk(plan, rows)


def _summary(plan: dict[str, Any]) -> str:
    def line(node: dict[str, Any]) -> str:
        where = node.get("Index Name") or node.get("Relation Name") or ""
        removed = node.get("Rows Removed by Filter", 0)
        return f"{node['Node Type']} {where} rows={node['Actual Rows']} removed={removed} x{node['Actual Loops']}"

    return "; ".join(_walk(plan, line))
