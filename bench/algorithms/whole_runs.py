"""What a whole run ends with: the trainer as a pod starts it, so that its own code climbs a curriculum."""

import contextlib
import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from learnloop_trainer.floating_point import settle
from learnloop_trainer.store.directory import DirectoryStore
from learnloop_trainer.training_order import Order, Place
from learnloop_trainer.training_run.rank import run

EPISODES = 200
CLIMBING: dict[str, Any] = {"curriculum": {}}
"""All levels, each with its own threshold, to the hardest: what a user gets."""


def proven_return(
    environment: str, algorithm: str, parameters: Mapping[str, Any], steps: int, seed: int, spec: Mapping[str, Any]
) -> float:
    """The mean held-out return in the manifest of one rank's run; `spec`: more fields of a TrainingJob's."""
    settle(1)
    data = {"environment": environment, **spec.get("data", {})}
    body = {"algorithm": algorithm, algorithm: dict(parameters), "seed": seed, "totalSteps": steps}
    body |= {"evaluation": {"episodes": EPISODES}, "gates": {"significant": False}, **spec, "data": data}
    with tempfile.TemporaryDirectory(prefix="bench-algorithms-") as directory:
        os.environ["LEARNLOOP_STORE"] = f"file://{directory}"
        order = Order.model_validate({"job": f"seed-{seed}", "spec": body})
        with contextlib.redirect_stdout(io.StringIO()):
            run(order, Place(), 1)
        manifest = DirectoryStore(Path(directory), order.job).manifest()
    assert manifest is not None  # run returns when it is durable
    return manifest.evaluation.mean
