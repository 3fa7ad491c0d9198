"""The number of ranks divides the work and changes nothing else: same global batches, same weights up to rounding.

docs/explanation/training.md states the tolerance. Sums are added up in another order, so that weights differ in the
last bits; over thousands of updates the difference grows, as any rounding does where actions are chosen.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from learnloop_trainer.store.run_store import DirectoryStore, part, unpack
from testing.servers.ports import held_port

TOLERANCE = 1e-4  # of any weight, after a thousand environment steps
LATER_TOLERANCE = 2e-2  # after many thousands
SMALL = {"environments": 4, "hidden": [16], "bufferSize": 1000, "batchSize": 32, "learningStarts": 64}
CASES = {
    "ppo": {},
    "dqn": {"hyperparameters": {**SMALL, "prioritized": True}},
    "sac": {"hyperparameters": {**SMALL, "stepsPerUpdate": 4}, "data": {"environment": "Pendulum-v1"}},
}


@pytest.fixture
def run(launch: Callable, tmp_path: Path) -> Callable[..., dict[str, np.ndarray]]:
    """Plays an order with so many ranks one after the other; all but the last get a stop signal once they train."""

    def played(order: dict, *sizes: int) -> dict[str, np.ndarray]:
        store = tmp_path / "-".join(map(str, sizes))
        for index, size in enumerate(sizes):
            with held_port() as port:
                shared = {"WORLD_SIZE": str(size), "MASTER_PORT": str(port), "LEARNLOOP_STORE": f"file://{store}"}
                ranks = [launch(order, RANK=str(rank), **shared) for rank in range(size)]
                last = index == len(sizes) - 1
                if not last:
                    [rank.wait_for(" training:") for rank in ranks]
                    [os.kill(rank.process.pid, signal.SIGTERM) for rank in ranks]
                ends = [rank.ended() for rank in ranks]
                assert [code for code, _ in ends] == [0 if last else 143] * size, ends
                if index:
                    assert f"it was saved by {sizes[index - 1]} ranks, {size} continue" in ends[0][1]
        saved = DirectoryStore(store, "small-1").checkpoint()
        return part(unpack(saved.body)[0], "shared")

    return played


def furthest(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    """The largest difference of any number in the shared state, moments of the optimizer included."""
    assert one.keys() == other.keys()
    return max(float(np.abs(one[name].astype(np.float64) - other[name]).max()) for name in one)


@pytest.mark.parametrize("algorithm", CASES)
def test_two_ranks_reach_the_weights_of_one_on_the_same_global_batches(run, small, algorithm):
    order = small(algorithm, 1024, **CASES[algorithm])
    difference = furthest(run(order, 1), run(order, 2))
    print(f"{algorithm}: {difference:.2e}")
    assert difference < TOLERANCE


def test_a_run_may_go_on_with_more_ranks_and_with_fewer(run, small):
    order = small(steps=64 * 300)
    difference = furthest(run(order, 1), run(order, 1, 3, 2))
    print(f"1, 3, 2 ranks: {difference:.2e}")
    assert difference < LATER_TOLERANCE
