"""The figures that `make bench-statistics` is judged by."""

import math
from collections.abc import Mapping

EXPERIMENT_ALPHA = 0.05
"""How often an experiment of equal arms may name a winner."""

GOALS: tuple[tuple[str, float, float], ...] = (
    ("false_rollback_rate", 0.0, 0.01),
    ("false_rollback_rate_held_at_first_step", 0.0, 0.01),
    ("return_false_rollback_rate", 0.0, 0.01),
    ("latency_p90_false_rollback_rate", 0.0, 0.01),
    ("latency_p99_false_rollback_rate", 0.0, 0.01),
    ("default_false_rollback_rate", 0.0, 0.01),
    ("drifting_default_false_rollback_rate", 0.0, 0.01),
    ("drifting_default_false_rollback_rate_worst_case", 0.0, 0.01),
    ("drifting_false_rollback_rate", 0.0, 0.01),
    ("default_all_failing_episodes_p50", 0.0, 5.0),
    ("default_half_failing_episodes_p50", 0.0, 10.0),
    ("fast_lane_false_rollback_rate_at_the_bar", 0.0, 0.001),
    ("lengths_false_rollback_rate", 0.0, 0.01),
    ("lengths_beaten_rate", 0.0, EXPERIMENT_ALPHA),
    ("hang_of_a_fifth_episodes_p50_service", 0.0, 300.0),
    ("hang_of_a_fifth_episodes_p50_gateway", 0.0, 300.0),
    ("pauses_rolled_back", 0.0, 0.0),
    ("pauses_that_never_end_rolled_back", 60.0, 60.0),
    ("drop_median_episodes", 0.0, 300.0),
    ("drop_median_episodes_worst", 0.0, 300.0),
    ("drop_power", 0.95, 1.0),
    ("drop_power_worst", 0.95, 1.0),
    ("experiment_2_arms_false_winner_rate", 0.0, EXPERIMENT_ALPHA),
    ("experiment_4_arms_false_winner_rate", 0.0, EXPERIMENT_ALPHA),
    ("false_passes", 0.0, 0.0),
    ("simulated_broken_promises", 0.0, 0.0),
    ("decisions_per_minute", 1_000_000.0, math.inf),
    *(
        (f"{name}_{graph}", goal, goal)
        for graph in ("sequential", "threshold", "steered")
        for name, goal in (
            ("false_passes", 0.0),
            ("explored_broken_promises", 0.0),
            ("explored_states_without_an_end", 0.0),
            ("explored_to_the_end", 1.0),
        )
    ),
)
"""Name, least and most."""


def judged(figures: Mapping[str, object]) -> list[str]:
    """The goals that were not met, each with its figure."""
    return [
        f"{name}: {value}, goal {least:g} to {most:g}"
        for name, least, most in GOALS
        if not isinstance(value := figures[name], int | float) or not least <= value <= most
    ]
