"""The selectors of PromQL expressions, of alerts and of dashboards."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
import yaml

CHART = Path(__file__).resolve().parents[2] / "charts" / "learnloop"
RULES = CHART / "rules" / "alerts.yaml"
_CHOSEN: Mapping[str, str] = {"$__range": "1h", "$namespace": ".*", "$agent": ".*"}


def rules() -> list[dict[str, Any]]:
    """Every alert."""
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def dashboards() -> dict[str, dict[str, Any]]:
    """Every dashboard of the chart, by file name."""
    return {path.name: json.loads(path.read_text()) for path in sorted((CHART / "dashboards").glob("*.json"))}


def panels(dashboard: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every panel, those within rows too."""
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels") or ()


def expressions(dashboard: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The place of each expression, and the expression as Grafana sends it with everything chosen."""
    for panel in panels(dashboard):
        for target in panel.get("targets") or ():
            yield panel["title"], chosen(target["expr"])
    for item in (dashboard.get("annotations") or {}).get("list") or ():
        if item.get("expr"):
            yield item["name"], chosen(item["expr"])


def chosen(expression: str) -> str:
    """With Grafana's variables in their places."""
    for name, value in _CHOSEN.items():
        expression = expression.replace(name, value)
    return expression


def selectors(expression: str) -> Iterator[promql_parser.VectorSelector]:
    """Every selector."""
    yield from _selectors(promql_parser.parse(expression))


def _selectors(expression: Any) -> Iterator[promql_parser.VectorSelector]:
    if isinstance(expression, promql_parser.VectorSelector):
        yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        inner = getattr(expression, name, None)
        if inner is not None:
            yield from _selectors(inner)
    for argument in getattr(expression, "args", None) or ():
        yield from _selectors(argument)
