"""A full rollout in four steps on a real API server, and how many writes it cost."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from testing.operators.api_access import from_kubeconfig
from testing.operators.crash_scenarios import GUEST, serves
from testing.operators.crash_sweep import MOST_TURNS
from testing.operators.crash_world import STEPS, World, full_spec, revision
from testing.operators.served_traffic import Provider

Watcher = Callable[[World], Awaitable[None]]

ERRORS = {"name": "errors", "type": "errors", "max": 0.5}
QUICK, SLOW = (0.6, 0.95, 0.6), (0.6, 0.7, 0.65)
"""Success rates of stable, of the new model and of an experiment's guest: decided in a minute, and in some."""
THRESHOLD = {"name": "success", "type": "success", "minRatio": 0.9}


_EXPERIMENT = {"experiment": {"arms": [GUEST], "minEpisodes": 50, "maxEpisodes": 100_000}}
STEPS_WITH_EXPERIMENT: list[dict[str, Any]] = [STEPS[0], {**STEPS[1], **_EXPERIMENT}, *STEPS[2:]]
"""The second of the four steps is an experiment of three arms."""


async def nobody(_: World) -> None:
    """Nobody looks."""


async def rollout_log(
    api_server: Path,
    metric: dict[str, Any],
    at_each_weight: Watcher = nobody,
    steps: list[dict[str, Any]] = STEPS,
    qualities: tuple[float, float, float] = (1.0, 1.0, 1.0),
    mode: str = "service",
) -> list[str]:
    """All writes of the operator from the new model's arrival until it serves alone, events among them.

    `qualities`: success rates of stable, of the new model, and of an experiment's guest (model 2).

    Raises:
        AssertionError: a step was left out, or a write broke a promise.
    """
    provider = Provider()
    await provider.start()
    analysis = {"intervalSeconds": 5, "metrics": [metric]}
    spec = full_spec(mode, serving={"replicas": 1}, analysis=analysis, rollout={"steps": steps, "keepForSeconds": 30})
    world = World(from_kubeconfig(api_server), provider, spec)
    world.traffic.quality |= {revision(0): qualities[0], revision(2): qualities[2]}
    await world.begin()
    while world.ledger.status.get("phase") != "Healthy" or await world.turn():
        await world.turn()
    before, weights = world.ledger.total, set[int]()
    await world.wish(1, qualities[1])
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
