"""SQL stands next to its table: routes call the module of their slice that owns it."""

import ast
import re
from pathlib import Path

import pytest

import learnloop_dataplane

PACKAGE = Path(learnloop_dataplane.__path__[0])
MODULES = {*(PACKAGE / "api").rglob("*.py"), *PACKAGE.rglob("routes.py")}
SQL = re.compile(r"^\s*(SELECT|INSERT INTO|UPDATE \w+ SET|DELETE FROM|WITH \w+ AS)\b")
STATEMENT_CALLS = {"tenant", "transaction", "fetch", "fetchrow", "fetchval", "fetch_as", "execute"}


@pytest.mark.parametrize("module", sorted(MODULES), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_route_holds_no_sql_and_opens_no_transaction(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    statements = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value)
    ]
    calls = [
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STATEMENT_CALLS
    ]
    assert not statements, "move the statement into the room whose table it reads"
    assert not calls, "move the transaction into the room whose table it reads"
