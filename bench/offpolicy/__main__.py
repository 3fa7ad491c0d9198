"""`python -m bench.offpolicy`: 100 estimates of a policy's return from another one's log, beside what it really earns.

Five worlds, 20 cases of each: which of three policies logs, which is judged, how much at random both act and how much
was logged is drawn. One line for each case; the last line is one JSON object. The goal: of the cases with a verdict, at
least 90 % have the true return within their interval. Seeds begin at 1000: limits were picked with lower ones.
"""

import json
import sys
import time
from collections.abc import Sequence

import numpy as np

from bench.arguments import numbers
from bench.offpolicy.cases import Outcome, drawn, judge
from bench.offpolicy.worlds import WORLDS, learned
from learnloop_trainer.floating_point import settle

FIRST = 1000
GOAL = 0.9


def figures(found: Sequence[Outcome]) -> dict[str, float | int | None]:
    """What the outcomes show."""
    judged = [one for one in found if one.estimate.verdict]
    widths = [_width(one) for one in judged]
    return {
        "cases": len(found),
        "verdicts": len(judged),
        "no_verdict_share": round(1.0 - len(judged) / len(found), 3),
        "within": sum(one.within for one in judged),
        "coverage": round(sum(one.within for one in judged) / len(judged), 3) if judged else None,
        "coverage_with_refused": round(sum(one.within for one in found) / len(found), 3),
        "median_half_width_of_range": round(float(np.median(widths)), 3) if widths else None,
        "promoted_but_worse": sum(_promoted(one) and one.true <= float(one.estimate.returns.mean()) for one in judged),
        "promoted": sum(_promoted(one) for one in judged),
    }


def _promoted(one: Outcome) -> bool:
    return one.estimate.corrected is not None and one.estimate.corrected.gain_low > 0


def _width(one: Outcome) -> float:
    found = one.estimate.corrected
    assert found is not None  # it has a verdict
    return (found.high - found.low) / 2 / max(1e-9, float(np.ptp(one.estimate.returns)))


def line(one: Outcome) -> str:
    """A case in one line."""
    found, case = one.estimate.corrected, one.case
    text = f"{case.world} logs {case.logs} judged {case.judged} of {case.episodes}: true {one.true:.3f}"
    if found is None:
        return f"{text}; {one.estimate.refused}"
    word = ("within" if one.within else "OUTSIDE") if one.estimate.verdict else "no verdict"
    interval = f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
    return f"{text}, estimated {interval}, model {one.estimate.model:.3f}, {found.steps} steps: {word}"


def main() -> None:
    """Print a line for each case, then all figures."""
    asked, began = numbers(__doc__, sys.argv[1:], cases=20), time.perf_counter()
    settle(1)
    found: dict[str, list[Outcome]] = {}
    for name, world in WORLDS.items():
        weights = learned(world, FIRST)
        found[name] = []
        for number in range(asked.cases):
            found[name].append(judge(drawn(name, number, FIRST), weights))
            print(f"{time.perf_counter() - began:.0f}s {line(found[name][-1])}", flush=True)
    every = [one for several in found.values() for one in several]
    total = figures(every)
    met = total["coverage"] is not None and float(total["coverage"]) >= GOAL
    print(json.dumps({**total, "goal_met": met, "worlds": {name: figures(some) for name, some in found.items()}}))


if __name__ == "__main__":
    main()
