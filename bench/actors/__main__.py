"""Steps a second by the number of samplers, on a world that sleeps 20 ms a step, and what they do to the returns.

    python -m bench.actors [seeds]

First PPO on CartPole-v1 whose every step takes 20 ms: synchronous collection, then 1, 2, 4 and 8 samplers of one
environment each. An update has 8 pieces of 16 steps in all of them. Efficiency is the share of samplers x 50 steps a
second that the learner gets; it shall be 0.8 or more up to 8. Then the same task without the sleep, for as many steps:
the mean return of the exported policy on held-out episodes, synchronous and with 4 samplers of 4
environments each.

The last line is JSON.
"""

import json
import os
import statistics
import sys
import time
from dataclasses import asdict

from bench.actors.one_run import Result, play
from bench.arguments import numbers

SLEEP = 0.02
COUNTS = (0, 1, 2, 4, 8)
WANTED = 0.8
SLOW = {"environments": 8, "horizon": 16}
FAST = {"environments": 16, "horizon": 32}
STEPS = 60_000
SAMPLERS, EACH = 4, 4


def main(seeds: int) -> dict[str, object]:
    """Print a table; returns what its last line says."""
    speeds: list[Result] = []
    ideal = 1 / SLEEP
    began = time.monotonic()
    print("samplers  steps/s  efficiency  staleness  dropped  CPU s")
    for count in COUNTS:
        steps = 128 * 8 * max(1, count)
        speeds.append(found := play(steps, count, seconds_a_step=SLEEP, ppo=SLOW, proven=False))
        share = found.steps_per_second / (ideal * max(1, count))
        name, rate, old = str(count) if count else "none", found.steps_per_second, found.staleness
        print(
            f"{name:>8}  {rate:7.1f}  {share:10.2f}  {old:9.2f}  {found.dropped_share:7.1%}  {found.cpu_seconds:5.1f}",
            flush=True,
        )
    returns: dict[int, list[float]] = {0: [], SAMPLERS: []}
    for seed in range(seeds):
        for count, found_returns in returns.items():
            played = play(STEPS, count, each=EACH, seconds_a_step=0.0, seed=seed, ppo=FAST, episodes=100)
            found_returns.append(played.episode_return)
            who = f"{count} samplers" if count else "the learner itself"
            print(
                f"seed {seed}: {STEPS} steps by {who}: return {played.episode_return:.1f}, "
                f"staleness {played.staleness:.2f}, dropped {played.dropped_share:.1%}, "
                f"{played.cpu_seconds:.0f} CPU s",
                flush=True,
            )
    difference = [late - own for own, late in zip(returns[0], returns[SAMPLERS], strict=True)]
    efficiency = {one.samplers: one.steps_per_second / (ideal * one.samplers) for one in speeds if one.samplers}
    return {
        "steps_per_second": {str(one.samplers): round(one.steps_per_second, 1) for one in speeds},
        "efficiency": {str(count): round(share, 3) for count, share in efficiency.items()},
        "least_efficiency": round(min(efficiency.values()), 3),
        "wanted": WANTED,
        "returns": {"synchronous": returns[0], f"{SAMPLERS} samplers": returns[SAMPLERS]},
        "mean_return": {
            "synchronous": round(statistics.fmean(returns[0]), 1),
            f"{SAMPLERS} samplers": round(statistics.fmean(returns[SAMPLERS]), 1),
        },
        "return_difference": round(statistics.fmean(difference), 1),
        "return_difference_by_seed": [round(item, 1) for item in difference],
        "seconds": round(time.monotonic() - began),
        "load_average": round(os.getloadavg()[0], 1),
        "runs": [asdict(one) | {"episode_return": None} for one in speeds],
    }


if __name__ == "__main__":
    arguments = numbers(__doc__, sys.argv[1:], seeds=2)
    print(json.dumps(main(arguments.seeds)))
