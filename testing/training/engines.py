"""Engines to run: the how-to's program and changes of it, as a child of the trainer or in a pod's script."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from learnloop_api.wire.engine import ENV_DIRECTORY
from learnloop_api.wire.training import Proof
from learnloop_operator.training.ranks import ENGINE_SCRIPT
from learnloop_trainer.engines.engine_run import run
from learnloop_trainer.store.run_store import DirectoryStore
from learnloop_trainer.training_order import Order, Place

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "how-to" / "bring-your-own-trainer.md"


def program(folder: Path, **changes: str) -> list[str]:
    """Command of the how-to's program, with words of it replaced by others."""
    text = GUIDE.read_text().split("```python\n")[1].split("```")[0]
    for words, others in changes.items():
        assert words in text, words
        text = text.replace(words, others)
    (folder / "train.py").write_text(text)
    return [sys.executable, str(folder / "train.py")]


def order(attempt: int = 0, steps: int = 300, **changes: Any) -> Order:
    own = {"image": "registry.example/own:1", "command": ["own"]}
    spec = {"algorithm": "custom", "totalSteps": steps, "data": {"environment": "CartPole-v1"}, "pod": own}
    spec |= {"evaluation": {"episodes": 16}, **changes}
    return Order.model_validate({"job": "own-1", "attempt": attempt, "spec": spec})


def trained(folder: Path, command: list[str] | None, **changes: Any) -> Proof:
    """The run's proof; its store is `folder`/store, which LEARNLOOP_STORE names."""
    run(order(**changes), Place(), 1, command)
    proof = DirectoryStore(folder / "store", "own-1").proof()
    assert proof is not None
    return proof


def in_a_pod(folder: Path, command: list[str]) -> "subprocess.Popen[bytes]":
    """The script of an engine's container, and LEARNLOOP_ENGINE_DIRECTORY as the trainer's container has it."""
    shared = folder / "shared"
    shared.mkdir()
    os.environ[ENV_DIRECTORY] = str(shared)
    environ = {"PATH": os.environ["PATH"], ENV_DIRECTORY: str(shared)}
    return subprocess.Popen(["/bin/sh", "-c", ENGINE_SCRIPT, "sh", *command], env=environ)
