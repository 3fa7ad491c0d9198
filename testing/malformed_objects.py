"""Good objects of every kind, and what malformed.yaml changes of them."""

import copy
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parents[1] / "tests" / "api" / "kinds"
GOOD = {item["kind"]: item for item in yaml.safe_load_all((HERE / "objects.yaml").read_text())}
CASES = yaml.safe_load((HERE / "malformed.yaml").read_text())


def changed(kind: str, values: dict | None = None, removed: tuple[str, ...] = ()) -> dict:
    """The good object of the kind with some fields (dotted path → value) set and some removed."""
    result = copy.deepcopy(GOOD[kind])
    result["metadata"]["namespace"] = "default"
    for path, value in (values or {}).items():
        parent, key = _parent(result, path)
        parent[key] = value
    for path in removed:
        parent, key = _parent(result, path)
        del parent[key]
    return result


def _parent(tree: dict, path: str) -> tuple[dict, str]:
    *parents, last = path.split(".")
    for key in parents:
        tree = tree.setdefault(key, {})
    return tree, last


def malformed(case: dict) -> dict:
    return changed(case["kind"], case.get("set", {}), case.get("remove", ()))
