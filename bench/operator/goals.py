"""The goals for the figures of `make bench-operator`, by their printed names."""

from collections.abc import Mapping
from typing import Any

GOALS: Mapping[str, float] = {
    "cold_start_s": 30.0,
    "event_to_status_p50_s": 0.05,
    "event_to_status_p99_s": 0.5,
    "idle_writes_per_minute": 0.0,
    "idle_cpu_percent": 5.0,
    "rss_mib": 350.0,
    "failover_graceful_max_s": 3.0,
    "failover_killed_max_s": 15.0,
    "failover_stopped_max_s": 15.0,
    "two_decisions_for_one_generation": 0.0,
    "spec_writes_per_rollout": 0.0,
}
"""The highest acceptable value: 1,000 ModelDeployments on 2 cores."""

LEAST: Mapping[str, float] = {"server_side_diff_empty": 1.0}
"""The lowest acceptable value."""


def judged(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The goals, those that were missed, and those whose figure is not there."""
    missed = [name for name, bar in GOALS.items() if name in figures and figures[name] > bar]
    missed += [name for name, bar in LEAST.items() if name in figures and figures[name] < bar]
    unknown = [name for name in (*GOALS, *LEAST) if name not in figures]
    return {"goals": {**GOALS, **LEAST}, "goals_missed": missed, "goals_not_measured": unknown}
