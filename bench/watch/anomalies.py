"""Anomalies of simulated agents: false alarms of quiet ones, missed ones of three planted kinds."""

import random
import statistics
from typing import Any

from bench.watch.curves import EPISODES, WRONG, planted, quiet
from bench.watch.watching import Seen, look, share

FALSE_ALARMS, RECALL = 0.01, 0.95


def measured(quiet_agents: int, agents: int, seed: int) -> dict[str, Any]:
    """Figures of this part, printed for people as well; `missed` names the goals that were."""
    draw = random.Random(seed)
    calm = [look(quiet(draw)) for _ in range(quiet_agents)]
    wrong = {kind: [look(planted(kind, draw)) for _ in range(agents)] for kind in WRONG}
    figures = _figures(calm, wrong) | {"episodes": EPISODES, "seed": seed}
    print(f"{quiet_agents} quiet agents of {EPISODES} episodes: {figures['false_alarms']:.2%} with a false alarm")
    print(f"  by the specification's literal rules: {figures['literal_false_alarms']:.1%}")
    for kind in sorted({item.kind for item in calm}):
        print(f"  {kind}: {share([item.false_alarm for item in calm if item.kind == kind]):.2%}")
    for kind, found in figures["planted"].items():
        late = f"after {found['episodes']:.0f} episodes (median)"
        print(f"{kind}: {found['recall']:.1%} of {agents} found, {late}")
    missed = ["false alarms"] if figures["false_alarms"] > FALSE_ALARMS else []
    missed += [f"recall of {kind}" for kind, found in figures["planted"].items() if found["recall"] < RECALL]
    return figures | {"missed": missed}


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
