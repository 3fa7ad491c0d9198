"""The cost of checkpoints: stretches of one training with and without them, taking turns.

`ratio` is 1 + the processor time of taking, hashing and writing checkpoints, in both threads, over that of everything
in the stretches with them. `pair_ratio` is the median over the pairs of processor time per step with and without them:
it would show what the first figure cannot see, e.g. caches made cold, but with other work on the machine it is noisy.
Both stretches of a pair do the same work in the same process, one after the other, and which comes first alternates.
Processor time is counted, so that what another process does to the clock is not; `pair_wall_ratio` is by the clock.
Checkpoints are real: to a directory, with fsync.
"""

import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from bench.resume.cases import CASES, JOB, order
from learnloop_trainer.distributed import Alone
from learnloop_trainer.progress_reporter import Reporter
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order
from learnloop_trainer.training_run.checkpoints import Saver
from learnloop_trainer.training_run.policy_training import PolicyTraining, begin
from learnloop_trainer.training_run.training_loop import Run, Session, Stopper

CPU = torch.device("cpu")
STRETCH = 3.0  # seconds
WARM = 2.0


class Enough(Exception):
    """All pairs are measured."""


@dataclass(slots=True)
class Stretches:
    """Seconds per environment step, of processor and wall, without (False) and with checkpoints (True)."""

    processor: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    wall: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    saves: int = 0
    saving: float = 0.0  # processor seconds of the checkpoints alone, in both threads
    processor_seconds: float = 0.0  # of everything, in the stretches with checkpoints


class Measured(Session[PolicyTraining]):
    """A session that saves in every second stretch only."""

    def measure(self, saver: Saver, pairs: int) -> Stretches:
        """Until so many pairs are done."""
        self.pairs, self.drain, self.stretches = pairs, saver, Stretches()
        self.saving, self.fresh, self.age, self.mark = False, False, 0.0, (0, 0.0, 0.0)
        self.until = time.monotonic() + WARM
        try:
            self.train()
        except Enough:
            return self.stretches
        raise SystemExit("the training ended before the measurement: raise its totalSteps")

    def _due(self) -> bool:
        return self.saving and super()._due()

    def _save(self, training: PolicyTraining) -> None:
        self._count_saving()
        super()._save(training)
        self.stretches.saves += 1
        self.fresh = True

    def _count_saving(self) -> None:
        """Add up what the last checkpoint took, once it is durable."""
        if self.fresh:
            self.stretches.saving += self._pause / self._strain + self.drain.cost
        self.fresh = False

    def _between(self, training: PolicyTraining) -> None:
        super()._between(training)
        if time.monotonic() >= self.until:
            self._turn(training.learner.step)

    def _turn(self, step: int) -> None:
        self.drain.flush(30.0)  # what this stretch began to save is this stretch's cost
        self._count_saving()
        first, processor, wall = self.mark
        if processor:
            self.stretches.processor_seconds += (time.process_time() - processor) * self.saving
            self.stretches.processor[self.saving].append((time.process_time() - processor) / (step - first))
            self.stretches.wall[self.saving].append((time.perf_counter() - wall) / (step - first))
        done = len(self.stretches.wall[False]) + len(self.stretches.wall[True])
        if done == 2 * self.pairs:
            raise Enough
        age = time.monotonic() - self._saved_at
        if self.saving:
            self.age = age  # the next stretch with checkpoints goes on where this one ends
        self.saving = done % 4 in {1, 2}  # without, with, with, without, …
        self._saved_at = time.monotonic() - self.age
        self.until = time.monotonic() + STRETCH
        self.mark = (step, time.process_time(), time.perf_counter())


def overhead(case: str, pairs: int) -> dict[str, Any]:
    """Of one case."""
    torch.set_num_threads(1)
    job = Order.model_validate(order(case, totalSteps=10**9))
    with tempfile.TemporaryDirectory(prefix="bench-resume-") as root:
        store, group = DirectoryStore(Path(root), JOB), Alone()
        saver = Saver(store)
        run = Run(job, group, CPU, store, Reporter(job, group.place, store), saver, Stopper(), time.time())
        session = Measured(run, begin)
        stretches = session.measure(saver, pairs)
        size = max(path.stat().st_size for path in Path(root).rglob("*.safetensors"))

    def ratios(seconds: dict[bool, list[float]]) -> list[float]:
        return sorted(on / off for on, off in zip(seconds[True], seconds[False], strict=True))

    processor, wall = ratios(stretches.processor), ratios(stretches.wall)
    return {
        "ratio": round(1 + stretches.saving / stretches.processor_seconds, 4),
        "pair_ratio": round(statistics.median(processor), 4),
        "pair_range": [round(processor[0], 4), round(processor[-1], 4)],
        "pair_wall_ratio": round(statistics.median(wall), 4),
        "pair_wall_range": [round(wall[0], 4), round(wall[-1], 4)],
        "pairs": pairs,
        "checkpoints": stretches.saves,
        "checkpoint_bytes": size,
    }


def overheads(pairs: int) -> dict[str, dict[str, Any]]:
    """Of every case."""
    report = {}
    for case in CASES:
        report[case] = overhead(case, pairs)
        print(f"overhead {case}: {report[case]}", flush=True)
    return report
