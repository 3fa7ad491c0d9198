"""What a full rollout in four steps costs the API server, in writes of the operator, events among them."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))

from crash_scenarios import SEQUENTIAL
from rollout_cost import ERRORS, QUICK, STEPS_WITH_EXPERIMENT, THRESHOLD, rollout_log


def measure(kubeconfig: Path) -> dict[str, float]:
    """Writes by the sort of check the rollout has to pass; none may be to a spec the user owns."""
    logs = {
        "writes_per_rollout": asyncio.run(rollout_log(kubeconfig, THRESHOLD)),
        "writes_per_sequential_rollout": asyncio.run(rollout_log(kubeconfig, SEQUENTIAL)),
        "writes_per_rollout_with_an_experiment_of_3_arms": asyncio.run(
            rollout_log(kubeconfig, ERRORS, steps=STEPS_WITH_EXPERIMENT, qualities=QUICK)
        ),
    }
    return {name: float(len(log)) for name, log in logs.items()}
