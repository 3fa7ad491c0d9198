"""What the figures of `make bench-operator` have to be, by the names they are printed under."""

from collections.abc import Mapping
from typing import Any

GOALS: Mapping[str, float] = {
    "cold_start_s": 15.0,
    "event_to_status_p50_s": 0.05,
    "event_to_status_p99_s": 0.5,
    "idle_writes_per_minute": 0.0,
    "idle_cpu_percent": 5.0,
    "rss_mib": 250.0,
    "burst_10000_s": 120.0,
    "burst_10000_longest_wait_s": 5.0,
    "burst_10000_neighbour_longest_wait_s": 5.0,
    "burst_10000_paced_s": 120.0,
    "burst_10000_paced_longest_wait_s": 5.0,
    "burst_10000_paced_neighbour_longest_wait_s": 5.0,
    "failover_graceful_max_s": 3.0,
    "failover_killed_max_s": 15.0,
    "failover_stopped_max_s": 15.0,
    "two_decisions_for_one_generation": 0.0,
    "writes_per_rollout": 25.0,
    "writes_per_sequential_rollout": 25.0,
    "spec_writes_per_rollout": 0.0,
    "writes_per_gateway_rollout": 25.0,
    "writes_per_sequential_gateway_rollout": 25.0,
}
"""The highest value that is still good enough: 1,000 ModelDeployments, 10,000 objects in a burst, on 2 cores.

Two cores cannot meet `burst_10000_longest_wait_s`, of the flood that is sent at once, whoever works on them:
`burst_10000_least_wait_s` of it is left to a bare client, too (docs/decisions/0019-fair-work-queue.md)."""

LEAST: Mapping[str, float] = {"server_side_diff_empty": 1.0}
"""The lowest: a yes."""


def judged(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The goals, those that were missed, and those whose figure is not there."""
    missed = [name for name, bar in GOALS.items() if name in figures and figures[name] > bar]
    missed += [name for name, bar in LEAST.items() if name in figures and figures[name] < bar]
    unknown = [name for name in (*GOALS, *LEAST) if name not in figures]
    return {"goals": {**GOALS, **LEAST}, "goals_missed": missed, "goals_not_measured": unknown}
