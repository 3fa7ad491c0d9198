"""The API server's cost of a full rollout in four steps: writes of the operator, events among them."""

import asyncio
from pathlib import Path

from testing.operators.crash_rig import Rig
from testing.operators.crash_scenarios import SEQUENTIAL
from testing.operators.gitops_differences import differences
from testing.operators.write_ledger import OWN
from testing.operators.writes_per_rollout import THRESHOLD, rollout_log


def measure(kubeconfig: Path) -> dict[str, float | bool]:
    """Writes by the sort of check the rollout has to pass; none may be to a spec the user owns."""
    logs = {
        "writes_per_rollout": asyncio.run(rollout_log(kubeconfig, THRESHOLD)),
        "writes_per_sequential_rollout": asyncio.run(rollout_log(kubeconfig, SEQUENTIAL)),
        "writes_per_gateway_rollout": asyncio.run(rollout_log(kubeconfig, THRESHOLD, mode="gateway")),
        "writes_per_sequential_gateway_rollout": asyncio.run(rollout_log(kubeconfig, SEQUENTIAL, mode="gateway")),
    }
    return {name: float(len(log)) for name, log in logs.items()} | asyncio.run(rollout_differences(kubeconfig))


async def rollout_differences(kubeconfig: Path) -> dict[str, float | bool]:
    """Of one rollout: its writes to what the user owns, and whether a GitOps tool that looked at each weight would have
    found anything to put right."""
    delays = []

    async def look(rig: Rig) -> None:
        delays.append(await differences(rig, 1))

    log = await rollout_log(kubeconfig, THRESHOLD, look)
    own = [write for write in log if any(kind in write for kind in OWN) and not write.endswith("/status")]
    return {
        "spec_writes_per_rollout": float(len(own)),
        "server_side_diffs_taken": float(len(delays)),
        "server_side_diff_empty": bool(delays) and not any(delays),
    }
