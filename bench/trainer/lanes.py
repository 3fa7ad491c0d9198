"""Runs of the sides, each a process of its own, pinned to one core and one thread; the sides take turns.

With two lanes two pairs run together, each on its own core. Both lanes hold runs of all sides in turns, and which side
goes first alternates by seed, so whatever else the machine does hits the sides alike.
"""

import json
import os
import queue
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.trainer.statistics_of import iqm
from bench.trainer.tasks import Task

HERE = Path(__file__).resolve().parent
BEGAN = time.monotonic()
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
Outcome = dict[str, Any]


@dataclass(frozen=True)
class Round:
    """One seed of one comparison: every side's program with its task, run one after another on the same core."""

    part: str
    name: str
    seed: int
    sides: dict[str, tuple[str, str, Task]]  # python, program, task


@dataclass(frozen=True)
class Lanes:
    """As many rounds in parallel as there are cores."""

    cores: Sequence[int]
    seconds: int = 600  # that one side may take

    def run(self, rounds: Sequence[Round]) -> dict[tuple[str, str], list[dict[str, Outcome]]]:
        """The outcomes by part and name, in the order of the seeds."""
        free: queue.Queue[int] = queue.Queue()
        for core in self.cores:
            free.put(core)

        def play(one: Round) -> dict[str, Outcome]:
            core = free.get()
            try:
                return self._round(one, core)
            finally:
                free.put(core)

        results: dict[tuple[str, str], list[dict[str, Outcome]]] = {}
        with ThreadPoolExecutor(len(self.cores)) as pool:
            for one, outcome in zip(rounds, pool.map(play, rounds), strict=True):
                results.setdefault((one.part, one.name), []).append(outcome)
        return results

    def _round(self, one: Round, core: int) -> dict[str, Outcome]:
        order = list(one.sides) if one.seed % 2 == 0 else list(reversed(one.sides))
        outcomes = {side: _process(core, self.seconds, *one.sides[side]) for side in order}
        shown = "; ".join(f"{side} {_summary(outcomes[side])}" for side in one.sides)
        minutes, seconds = divmod(int(time.monotonic() - BEGAN), 60)
        print(f"{minutes:02d}:{seconds:02d} {one.part} {one.name} seed {one.seed}: {shown}", flush=True)
        return outcomes


def _summary(outcome: Outcome) -> str:
    text = f"{outcome['steps'] / outcome['wall_s']:,.0f} steps/s"
    if outcome.get("solved_s"):
        text += f", solved after {outcome['solved_s']:.1f} s"
    if "returns" in outcome:
        text += f", {outcome['updates']} updates, return {iqm(outcome['returns']):.0f}"
    return text


def _process(core: int, seconds: int, python: str, program: str, task: Task) -> Outcome:
    environ = os.environ | ONE_THREAD | {"CUDA_VISIBLE_DEVICES": ""}
    command = ["taskset", "-c", str(core), python, "-W", "ignore", str(HERE / program), json.dumps(task)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise SystemExit(f"{program} failed on {json.dumps(task)}:\n{done.stderr[-2000:]}")
    outcome: Outcome = json.loads(done.stdout.strip().splitlines()[-1])
    return outcome
