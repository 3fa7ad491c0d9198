"""Steps a second by the number of samplers, on a world that sleeps 20 ms a step, and what they do to the returns.

    python -m bench.actors [seeds] [--peer PYTHON]

First PPO on CartPole-v1 whose every step takes 20 ms: synchronous collection, then 1, 2, 4 and 8 samplers of one
environment each. An update has 8 pieces of 16 steps in all of them. Efficiency is the share of samplers x 50 steps a
second that the learner gets; it shall be 0.8 or more up to 8. Then the same task without the sleep, for as many steps:
the mean return of the exported policy on held-out episodes, synchronous and with 4 samplers of 4
environments each. `--peer` names the python of an environment with RLlib: its APPO collects beside the samplers.

The last line is JSON.
"""

import json
import os
import statistics
import subprocess
import time
from dataclasses import asdict

from bench.actors.one_run import Result, play
from bench.actors.slow_world import STEP_SECONDS
from bench.arguments import parser

SLEEP = 0.02
COUNTS = (0, 1, 2, 4, 8)
WANTED = 0.8
SLOW = {"environments": 8, "horizon": 16}
FAST = {"environments": 16, "horizon": 32}
STEPS = 60_000
SAMPLERS, EACH = 4, 4


PEER_COUNTS = (1, 8)
PEER_SECONDS = 900


def peer(python: str, runners: int, steps: int) -> dict[str, float]:
    """Steps a second of RLlib's APPO on the slow world; raises subprocess errors where it does not get so far."""
    environ = os.environ | {STEP_SECONDS: str(SLEEP), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    environ |= {"RAY_worker_niceness": "0"}  # Ray gives its workers way to everybody, and samplers here do not
    command = [python, "-m", "bench.actors.rllib_appo", str(runners), str(steps)]
    ran = subprocess.run(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PEER_SECONDS, check=True
    )
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def beside(python: str, speeds: list[Result]) -> dict[str, dict[str, float]]:
    """RLlib's speed by the number of its runners, and what share of ours it is."""
    told = {}
    for one in speeds:
        if one.samplers in PEER_COUNTS:
            found = peer(python, one.samplers, 128 * 8 * one.samplers)
            rate = found["steps_per_second"]
            told[str(one.samplers)] = found | {"ours_over_its": round(one.steps_per_second / rate, 2)}
            began, times = found["seconds_to_first"], one.steps_per_second / rate
            print(f"RLlib, {one.samplers} runners: {rate:.1f} steps/s, the first after {began:.0f} s; ", end="")
            print(f"samplers had {times:.2f} times as many", flush=True)
    return told


def main(seeds: int, python: str | None) -> dict[str, object]:
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
    rllib = beside(python, speeds) if python else None
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
        "rllib_appo": rllib,
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
    known = parser(__doc__)
    known.add_argument("seeds", nargs="?", type=int, default=2, help="2 where left out")
    known.add_argument("--peer", metavar="PYTHON", help="of an environment with RLlib; see bench/actors/peer_venv")
    arguments = known.parse_args()
    print(json.dumps(main(arguments.seeds, arguments.peer)))
