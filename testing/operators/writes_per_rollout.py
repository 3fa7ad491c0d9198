"""A full rollout in four steps on a real API server, and how many writes it cost."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from testing.operators.api_access import from_kubeconfig
from testing.operators.crash_scenarios import serves
from testing.operators.crash_sweep import MOST_TURNS
from testing.operators.crash_world import STEPS, World, full_spec
from testing.operators.served_traffic import Provider

Watcher = Callable[[World], Awaitable[None]]

THRESHOLD = {"name": "success", "type": "success", "minRatio": 0.9}


async def nobody(_: World) -> None:
    """Nobody looks."""


async def rollout_log(
    api_server: Path,
    metric: dict[str, Any],
    at_each_weight: Watcher = nobody,
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
    world = World(from_kubeconfig(api_server), provider, spec)
    await world.begin()
    while world.ledger.status.get("phase") != "Healthy" or await world.turn():
        await world.turn()
    before, weights = world.ledger.total, set[int]()
    await world.wish(1, 1.0)
    for _ in range(MOST_TURNS):
        await world.turn()
        weight = world.ledger.status.get("weight")
        if weight is not None and weight not in weights:
            weights.add(weight)
            await at_each_weight(world)
        if serves(1)(world):
            break
    while await world.turn():
        pass
    assert weights >= {10, 25, 50, 100}
    assert not world.ledger.violations
    log = world.ledger.log[before:]
    await world.end()
    await provider.stop()
    return log
