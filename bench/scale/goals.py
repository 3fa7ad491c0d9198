"""The goals for the figures of `make bench-scale`, by their printed names."""

from collections.abc import Mapping
from typing import Any

GOALS: Mapping[str, float] = {
    "settled_cores": 0.1,
    "settled_rss_mib": 400.0,
    "caught_up_s": 90.0,
    "rollback_p99_ratio": 1.2,
    "two_decisions_for_one_generation": 0.0,
}
"""The highest value that is still good enough: 500 nodes, 2,000 agents and ModelDeployments, 10,000 pods."""
NEEDED = 100
"""Rollbacks in each cluster: of fewer, the 99th percentile is the greatest alone, and says more of the machine."""


def judged(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The goals, those that were missed, and those whose figure is not there."""
    few = figures.get("rollbacks", 0) < NEEDED
    unknown = [name for name in GOALS if name not in figures or (name == "rollback_p99_ratio" and few)]
    missed = [name for name, bar in GOALS.items() if name not in unknown and figures[name] > bar]
    return {"goals": dict(GOALS), "goals_missed": missed, "goals_not_measured": unknown}
