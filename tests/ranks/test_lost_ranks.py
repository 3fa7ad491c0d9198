"""A lost or hung rank never hangs the others: soon after it is back all of them train; meanwhile they say why not."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from learnloop_api.wire.training import Heartbeat
from testing.servers.ports import held_port

Launch = Callable[..., Any]
Small = Callable[..., dict[str, Any]]
STEPS = 64 * 20_000
AGAIN_SECONDS = 15.0
START_SECONDS = 2.5  # what a rank takes to load its libraries on a quiet machine of two cores


def allowed() -> float:
    """15 s, and as much longer as this machine is slower now than a quiet one."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import learnloop_trainer.training_run.rank"], check=True)
    return AGAIN_SECONDS * max(1.0, (time.monotonic() - began) / START_SECONDS)


class Pair:
    """Two ranks of one run, each as often as its pod is made."""

    def __init__(self, launch: Launch, order: object, store: Path, port: int) -> None:
        self._launch, self._order = launch, order
        self._environ = {"WORLD_SIZE": "2", "MASTER_PORT": str(port), "LEARNLOOP_STORE": f"file://{store}"}
        self._environ |= {"LEARNLOOP_COLLECTIVE_SECONDS": "2"}
        self.heartbeat = store / "runs/small-1/heartbeat.json"
        self.lives = {0: [], 1: []}
        for rank in (0, 1):
            self.start(rank)
        self.train()

    def start(self, rank: int) -> None:
        """The rank's pod is made, or made again."""
        self.lives[rank].append(self._launch(self._order, RANK=str(rank), **self._environ))

    def beginnings(self, rank: int) -> int:
        """How often this rank has begun to train."""
        return sum(life.output().count(f"rank {rank}/2 training:") for life in self.lives[rank])

    def train(self, before: tuple[int, int] = (0, 0), seconds: float = 120) -> float:
        """Wait until both train, each once more than `before`; returns how long it took."""
        began = time.monotonic()
        while any(self.beginnings(rank) <= before[rank] for rank in (0, 1)):
            output = [life.output()[-1500:] for lives in self.lives.values() for life in lives]
            assert time.monotonic() - began < seconds, "\n---\n".join(output)
            time.sleep(0.01)
        return time.monotonic() - began


@pytest.fixture
def pair(launch: Launch, small: Small, tmp_path: Path) -> Iterator[Pair]:
    with held_port() as port:
        yield Pair(launch, small(steps=STEPS, checkpoint={"everySeconds": 1}), tmp_path / "s", port)


@pytest.mark.parametrize("lost", [0, 1])
def test_all_ranks_train_within_15_s_of_the_return_of_one_that_was_killed(pair: Pair, lost: int) -> None:
    before = (pair.beginnings(0), pair.beginnings(1))
    pair.lives[lost][-1].process.kill()
    pair.lives[lost][-1].ended()
    pair.start(lost)
    assert pair.train(before) < allowed()


def test_a_rank_that_hangs_is_noticed_and_the_run_goes_on_when_it_is_replaced(pair: Pair) -> None:
    before = (pair.beginnings(0), pair.beginnings(1))
    hung = pair.lives[1][-1]
    os.kill(hung.process.pid, signal.SIGSTOP)
    pair.lives[0][-1].wait_for("a peer was lost")
    pair.lives[0][-1].wait_until(
        lambda: "waiting for 1 of 2 ranks: 1" in Heartbeat.model_validate_json(pair.heartbeat.read_text()).message
    )
    hung.process.kill()
    pair.start(1)
    assert pair.train(before) < allowed()


def test_losing_ranks_again_and_again_never_slows_the_return(pair: Pair) -> None:
    """A group that made progress between two losses is as patient as at the first one."""
    took = []
    for _ in range(3):
        pair.lives[0][-1].wait_until(lambda: pair.heartbeat.exists())
        time.sleep(2.5)  # two checkpoints
        before = (pair.beginnings(0), pair.beginnings(1))
        pair.lives[1][-1].process.kill()
        pair.start(1)
        took.append(pair.train(before))
    assert max(took) < allowed(), took
