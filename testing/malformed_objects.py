"""Good objects of every kind, and what malformed.yaml changes of them."""

import copy
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parents[1] / "tests" / "api" / "kinds"
GOOD = {item["kind"]: item for item in yaml.safe_load_all((HERE / "objects.yaml").read_text())}
CASES = yaml.safe_load((HERE / "malformed.yaml").read_text())


def changed(kind: str, values: dict[str, Any] | None = None, removed: tuple[str, ...] = ()) -> dict[str, Any]:
    """The good object of the kind with some fields (dotted path → value) set and some removed."""
    result: dict[str, Any] = copy.deepcopy(GOOD[kind])
    result["metadata"]["namespace"] = "default"
    for path, value in (values or {}).items():
        parent, key = _parent(result, path)
        parent[key] = value
    for path in removed:
        parent, key = _parent(result, path)
        del parent[key]
    return result


def _parent(tree: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    *parents, last = path.split(".")
    for key in parents:
        tree = tree.setdefault(key, {})
    return tree, last


def malformed(case: dict[str, Any]) -> dict[str, Any]:
    return changed(case["kind"], case.get("set", {}), case.get("remove", ()))
