"""`make bench-watch`: false alarms of quiet agents, missed anomalies of three planted kinds.

The last line is JSON with every figure. Exit code 1 when a goal is missed.
"""

import argparse
import json
import random
import statistics
import sys
from typing import Any

from bench.watch.curves import EPISODES, WRONG, planted, quiet
from bench.watch.watching import Seen, look, share

FALSE_ALARMS, RECALL = 0.01, 0.95


def main(arguments: list[str]) -> int:
    """Prints the figures; 1 when a goal is missed."""
    options = _options(arguments)
    draw = random.Random(options.seed)
    calm = [look(quiet(draw)) for _ in range(options.quiet)]
    wrong = {kind: [look(planted(kind, draw)) for _ in range(options.agents)] for kind in WRONG}
    figures = _figures(calm, wrong) | {"episodes": EPISODES, "seed": options.seed}
    print(f"{options.quiet} quiet agents of {EPISODES} episodes: {figures['false_alarms']:.2%} with a false alarm")
    print(f"  by the specification's literal rules: {figures['literal_false_alarms']:.1%}")
    for kind in sorted({item.kind for item in calm}):
        print(f"  {kind}: {share([item.false_alarm for item in calm if item.kind == kind]):.2%}")
    for kind, found in figures["planted"].items():
        late = f"after {found['episodes']:.0f} episodes (median)"
        print(f"{kind}: {found['recall']:.1%} of {options.agents} found, {late}")
    met = figures["false_alarms"] <= FALSE_ALARMS and all(
        found["recall"] >= RECALL for found in figures["planted"].values()
    )
    print(json.dumps(figures | {"met": met}))
    return 0 if met else 1


def _figures(calm: list[Seen], wrong: dict[str, list[Seen]]) -> dict[str, Any]:
    found = {}
    for kind, seen in wrong.items():
        after = [item.after for item in seen if item.after is not None]
        recall = len(after) / len(seen)
        found[kind] = {"recall": recall, "missed": len(seen) - len(after), "episodes": statistics.median(after or [0])}
    return {
        "quiet_agents": len(calm),
        "false_alarms": share([item.false_alarm for item in calm]),
        "literal_false_alarms": share([item.literal for item in calm]),
        "planted": found,
    }


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.watch", description=__doc__)
    parser.add_argument("--quiet", type=int, default=1000, help="simulated agents with nothing wrong")
    parser.add_argument("--agents", type=int, default=200, help="simulated agents of each planted kind")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
