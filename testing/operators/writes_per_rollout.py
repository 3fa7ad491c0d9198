"""A full rollout in four steps on a real API server, and how many writes it cost."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from testing.operators.api_access import from_kubeconfig
from testing.operators.crash_rig import STEPS, Rig, full_spec
from testing.operators.crash_scenarios import serves
from testing.operators.crash_sweep import MOST_TURNS
from testing.operators.served_traffic import Provider

Watcher = Callable[[Rig], Awaitable[None]]

THRESHOLD = {"name": "success", "type": "success", "minRatio": 0.9}


async def no_change(_: Rig) -> None:
    """Has no effect."""


async def rollout_log(
    api_server: Path,
    metric: dict[str, Any],
    at_each_weight: Watcher = no_change,
    mode: str = "service",
) -> list[str]:
    """All writes of the operator from the new model's arrival until it serves alone, events among them.

    Raises:
        AssertionError: a step was left out, or a write broke a promise.
    """
    provider = Provider()
    await provider.start()
    analysis = {"intervalSeconds": 5, "metrics": [metric]}
    spec = full_spec(mode, serving={"replicas": 1}, analysis=analysis, rollout={"steps": STEPS, "keepForSeconds": 30})
    rig = Rig(from_kubeconfig(api_server), provider, spec)
    await rig.begin()
    while rig.ledger.status.get("phase") != "Healthy" or await rig.turn():
        await rig.turn()
    before, weights = rig.ledger.total, set[int]()
    await rig.wish(1, 1.0)
    for _ in range(MOST_TURNS):
        await rig.turn()
        weight = rig.ledger.status.get("weight")
        if weight is not None and weight not in weights:
            weights.add(weight)
            await at_each_weight(rig)
        if serves(1)(rig):
            break
    while await rig.turn():
        pass
    assert weights >= {10, 25, 50, 100}
    assert not rig.ledger.violations
    log = rig.ledger.log[before:]
    await rig.end()
    await provider.stop()
    return log
