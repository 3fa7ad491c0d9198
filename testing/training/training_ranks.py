"""Small orders, and real ranks in processes of their own: fixtures for the tests of one rank and of several."""

import copy
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from learnloop_api.kinds.training.algorithms import ALGORITHMS
from learnloop_trainer.training_order import Order

PPO = {"environments": 8, "horizon": 8, "epochs": 1, "minibatches": 1, "hidden": [16]}
DQN = {"environments": 8, "bufferSize": 1000, "batchSize": 32, "learningStarts": 64, "hidden": [16]}


def _taken(algorithm: str, hyperparameters: dict[str, Any]) -> dict[str, Any]:
    """Those that the algorithm takes."""
    return {name: value for name, value in hyperparameters.items() if name in ALGORITHMS[algorithm].fields}


def document(algorithm: str = "ppo", steps: int = 1024, **changes: Any) -> dict[str, Any]:
    """LEARNLOOP_TRAINING_SPEC of a small run; `changes` go into the spec."""
    spec = {
        "algorithm": algorithm,
        "totalSteps": steps,
        "hyperparameters": PPO if algorithm == "ppo" else _taken(algorithm, DQN),
        "data": {"environment": "CartPole-v1"},
        "evaluation": {"episodes": 8},
        **changes,
    }
    return copy.deepcopy({"job": "small-1", "attempt": 0, "spec": spec})


@pytest.fixture
def small() -> Callable[..., dict[str, Any]]:
    """Documents of small runs."""
    return document


@pytest.fixture
def make_order() -> Callable[..., Order]:
    """Orders of small runs."""
    return lambda *args, **changes: Order.model_validate(document(*args, **changes))


# Ranks are forked from a server that has imported torch once: importing it costs more than most runs here.
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["learnloop_trainer.training_run.rank"])


def process(target: Callable[..., Any], *arguments: Any) -> Any:
    """A process that has imported torch and the trainer already; it is not started."""
    return _server.Process(target=target, args=arguments, daemon=True)


_LIFE = """
import os, sys
from pathlib import Path
handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
os.dup2(handle, 1)
os.dup2(handle, 2)
os.environ.clear()
os.environ.update(environ)
sys.path[:0] = environ.get("PYTHONPATH", "").split(os.pathsep)
from learnloop_trainer.__main__ import main
code = main()
sys.stdout.flush()
os._exit(code)
"""  # what `python -m learnloop_trainer` does


class Rank:
    """One running rank."""

    def __init__(self, environ: dict[str, str], log: Path) -> None:
        self._log = log
        self.process = _server.Process(target=exec, args=(_LIFE, {"environ": environ, "log": str(log)}), daemon=True)
        self.process.start()

    def output(self) -> str:
        """Its output so far."""
        return self._log.read_text() if self._log.exists() else ""

    def wait_for(self, words: str, seconds: float = 120) -> None:
        """Return when it has said this."""
        end = time.monotonic() + seconds
        while words not in self.output():
            assert time.monotonic() < end, f"never said {words!r}: {self.output()}"
            time.sleep(0.01)

    def wait_until(self, happened: Callable[[], object], seconds: float = 120) -> None:
        """Return when it has happened, while the rank runs."""
        end = time.monotonic() + seconds
        while not happened():
            assert time.monotonic() < end, f"never happened: {self.output()}"
            assert self.process.is_alive(), self.output()
            time.sleep(0.01)

    def ended(self, seconds: float = 240) -> tuple[int | None, str]:
        """Exit code and output."""
        self.process.join(seconds)
        return self.process.exitcode, self.output()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Rank]]:
    """Start real ranks: `launch(document, RANK="1", …)`."""
    started: list[Rank] = []

    def start(order: object, **environ: str) -> Rank:
        complete = {
            "PATH": os.environ["PATH"],
            "LEARNLOOP_TRAINING_SPEC": order if isinstance(order, str) else json.dumps(order),
            "LEARNLOOP_TERMINATION_LOG": str(tmp_path / f"termination-{environ.get('RANK', '0')}"),
            "LEARNLOOP_STORE": f"file://{tmp_path}/store",
            **environ,
        }
        started.append(Rank(complete, tmp_path / f"rank-{len(started)}.log"))
        return started[-1]

    yield start
    for rank in started:
        rank.process.kill()
