"""The state graphs of `decide`, each walked in a process of its own: `python -m testing.state_walk.every_walk`.

For each graph the same walk with an operator that was sabotaged: an oracle that does not object to it sees nothing.
"""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

from bench.arguments import numbers
from testing.state_walk import manual_rollout_walk
from testing.state_walk.breadth_first import WalkResult
from testing.state_walk.rollout_walk import explore, explore_agreeing, explore_apart, explore_hasty

Figures = dict[str, object]
MOST_TRANSITIONS, SABOTAGED = 1_000_000, 20_000
GRAPHS: Mapping[str, Callable[[int], WalkResult]] = {
    "steered": manual_rollout_walk.explore,
    "sequential": partial(explore, "sequential"),
    "threshold": partial(explore, "threshold"),
}
"""The longest first, so that no core waits for it at the end."""
SABOTAGES: Mapping[str, tuple[str, Callable[[int], WalkResult]]] = {
    "sequential_of_a_judge_that_always_agrees": ("sequential", partial(explore_agreeing, "sequential")),
    "sequential_of_steps_that_are_an_episode_short": ("sequential", partial(explore_hasty, "sequential")),
    "threshold_of_a_judge_that_always_agrees": ("threshold", partial(explore_agreeing, "threshold")),
    "threshold_of_steps_that_are_an_episode_short": ("threshold", partial(explore_hasty, "threshold")),
    "threshold_of_a_judge_that_compares_nothing": ("threshold", partial(explore_apart, "threshold")),
    "steered_of_checks_that_always_agree": ("steered", manual_rollout_walk.explore_agreeing),
    "steered_of_a_pause_that_anybody_passes": ("steered", manual_rollout_walk.explore_unasked),
}
"""By what is wrong with it: the graph, and the walk."""


def graphs() -> Figures:
    """Every graph to its end, and what the oracles make of operators that are wrong."""
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(os.cpu_count() or 1) as pool:
        results = dict(pool.imap_unordered(_walked, (*GRAPHS, *SABOTAGES), chunksize=1))
    blind = [name for name in SABOTAGES if not results[name].false_passes]
    assert not blind, f"the oracle notices no false pass {', '.join(blind)}"
    for name in GRAPHS:
        for sentence in (*results[name].false_passes[:5], *results[name].broken[:5]):
            print(f"{name}: {sentence}", file=sys.stderr)
    figures: Figures = {}
    for name in GRAPHS:
        figures |= results[name].figures(name)
    figures |= {f"false_passes_{name}": len(results[name].false_passes) for name in SABOTAGES}
    walked = [results[name] for name in GRAPHS]
    return figures | {
        "false_passes": sum(len(one.false_passes) for one in walked),
        "explored_states": sum(one.nodes for one in walked),
        "explored_transitions": sum(one.transitions for one in walked),
        "explored_in_seconds": round(time.perf_counter() - began, 1),
    }


def _walked(name: str) -> tuple[str, WalkResult]:
    if name in GRAPHS:
        return name, GRAPHS[name](MOST_TRANSITIONS)
    return name, SABOTAGES[name][1](SABOTAGED)


def main() -> int:
    """The figures of the graphs alone; 1 when a pass was false, a promise broken, or a graph not walked to its end."""
    figures = graphs()
    print(json.dumps(figures))
    wrong = ("false_passes", "explored_broken_promises", "explored_states_without_an_end")
    clean = not any(figures[f"{name}_{graph}"] for graph in GRAPHS for name in wrong)
    return 0 if clean and all(figures[f"explored_to_the_end_{graph}"] for graph in GRAPHS) else 1


if __name__ == "__main__":
    numbers(__doc__, sys.argv[1:])
    sys.exit(main())
