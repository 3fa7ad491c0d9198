"""Kills the operator before and after every API write of whole rollouts; prints one JSON object as its last line.

    python tests/support/crash_sweep.py [--kubeconfig FILE] [--every N] [--only SCENARIO]

A run that was killed once must end where the undisturbed run ends, and no write may break what protects users: the
canary's weight within its step, stable with all its pods, the user's spec untouched.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_world import NAME, World, full_spec, model
from own_api_server import api_server
from served_traffic import Provider

from learnloop_operator.adapters import kubeconfig
from learnloop_operator.adapters.kinds import MODEL_DEPLOYMENT
from learnloop_operator.adapters.kubeconfig import Connection

MOST_TURNS = 400
AT_ONCE = 12
SEQUENTIAL = {"name": "success", "type": "success", "test": "sequential", "maxDrop": 0.3}

Act = Callable[[World], Awaitable[None]]
Seen = Callable[[World], bool]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the user does, each after the status shows that what was before is done."""

    name: str
    chapters: tuple[tuple[Act, Seen], ...]
    spec: dict[str, Any] = field(default_factory=full_spec)


@dataclass(slots=True)
class Outcome:
    """How one run ended."""

    state: dict[str, Any]
    writes: int
    log: list[str]
    violations: list[str]
    deaths: int


def serves(number: int) -> Seen:
    """That model serves everybody, and nothing else is left."""
    return lambda world: (
        world.ledger.status.get("phase") == "Healthy"
        and world.ledger.status["stable"]["uri"] == model(number)["uri"]
        and len(world.ledger.replicas) == 1
    )


def phase(name: str, arms: int = 0) -> Seen:
    """The status says this phase; with `arms`, so many Deployments are left."""
    return lambda world: world.ledger.status.get("phase") == name and (not arms or len(world.ledger.replicas) == arms)


def weight(percent: int) -> Seen:
    """The canary has this weight."""
    return lambda world: world.ledger.status.get("weight") == percent


def wishes(number: int, quality: float) -> Act:
    """The user asks for a model that is so good."""
    return lambda world: world.wish(number, quality)


async def nothing(_: World) -> None:
    """The user has applied the object, and waits."""


async def turns_bad(world: World) -> None:
    """The model that was just promoted fails from now on."""
    world.traffic.quality[world.ledger.status["stable"]["revision"]] = 0.0


async def aborts(world: World) -> None:
    """A person takes the canary back."""
    revision = world.ledger.status["canary"]["revision"]
    change = {"metadata": {"annotations": {"learnloop.dev/abort": revision}}}
    await world.user.patch(MODEL_DEPLOYMENT, world.namespace, NAME, change)


FIRST = (nothing, phase("Healthy"))
SCENARIOS = (
    Scenario("promoted", (FIRST, (wishes(1, 1.0), serves(1)))),
    Scenario("rolled back", (FIRST, (wishes(1, 0.2), phase("RolledBack", 1)))),
    Scenario(
        "promoted by a sequential test",
        (FIRST, (wishes(1, 1.0), serves(1))),
        full_spec(analysis={"intervalSeconds": 5, "metrics": [SEQUENTIAL]}),
    ),
    Scenario(
        "swapped back while guarding", (FIRST, (wishes(1, 1.0), phase("Guarding")), (turns_bad, phase("RolledBack", 1)))
    ),
    Scenario("superseded", (FIRST, (wishes(1, 1.0), weight(25)), (wishes(2, 1.0), serves(2)))),
    Scenario("aborted", (FIRST, (wishes(1, 1.0), weight(50)), (aborts, phase("RolledBack", 1)))),
)


USUAL = ("promoted", "rolled back", "swapped back while guarding")
"""What a sweep takes unless told otherwise: all ways a rollout may end by itself."""


async def run(
    connection: Connection,
    provider: Provider,
    scenario: Scenario,
    kill: tuple[int, str] | None = None,
    through: Connection | None = None,
) -> Outcome:
    """The whole story once; the operator reaches the API server `through` something else, if given."""
    world = World(connection, provider, scenario.spec, through)
    await world.begin()
    world.ledger.kill = kill
    turns = 0
    for act, done in scenario.chapters:
        await act(world)
        while not done(world):
            await world.turn()
            if through is not None:
                await world.observe()
            turns += 1
            assert turns < MOST_TURNS, f"{scenario.name}, killed at {kill}: {world.ledger.status.get('verdict')}"
    for _ in range(8):
        if not await world.turn() and through is None:
            break
    ledger = world.ledger
    found = Outcome(await world.end_state(), ledger.total, ledger.log, ledger.violations, world.deaths)
    await world.end()
    return found


def sweep_of(name: str) -> Scenario:
    """The scenario of that name."""
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


@dataclass(slots=True)
class Sweep:
    """All runs of all scenarios."""

    points: int = 0
    converged: int = 0
    violations: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    writes: dict[str, int] = field(default_factory=dict)


async def sweep(path: Path, every: int = 1, names: tuple[str, ...] = ()) -> Sweep:
    """Kill at each `every`-th point of each scenario (the usual ones, or those named)."""
    connection, provider, result = kubeconfig.from_kubeconfig(path), Provider(), Sweep()
    await provider.start()
    for scenario in SCENARIOS:
        if scenario.name in (names or USUAL):
            await _sweep_one(connection, provider, scenario, every, result)
    await provider.stop()
    return result


async def _sweep_one(connection: Connection, provider: Provider, scenario: Scenario, every: int, result: Sweep) -> None:
    undisturbed = await run(connection, provider, scenario)
    result.writes[scenario.name] = undisturbed.writes
    result.violations += [f"{scenario.name}, undisturbed: {text}" for text in undisturbed.violations]
    points = [(number, side) for number in range(1, undisturbed.writes + 1) for side in ("before", "after")]
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(point: tuple[int, str]) -> None:
        async with turn:
            found = await run(connection, provider, scenario, point)
        where = f"{scenario.name}, killed {point[1]} write {point[0]} ({undisturbed.log[point[0] - 1]})"
        result.points += found.deaths
        result.violations += [f"{where}: {text}" for text in found.violations]
        if found.state == undisturbed.state:
            result.converged += found.deaths
        else:
            result.different.append(f"{where}: {difference(undisturbed.state, found.state)}")

    await asyncio.gather(*(one(point) for point in points[::every]))


def difference(wanted: Any, found: Any, path: str = "") -> str:
    """The first place where two states differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted({*wanted, *found}):
            if wanted.get(key) != found.get(key):
                return difference(wanted.get(key), found.get(key), f"{path}.{key}")
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (ours, theirs) in enumerate(zip(wanted, found, strict=True)):
            if ours != theirs:
                return difference(ours, theirs, f"{path}[{index}]")
    return f"{path}: {str(wanted)[:200]} became {str(found)[:200]}"


def main() -> int:
    """Exit code 1 when a run did not converge or a write broke a promise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kubeconfig", type=Path, help="an API server with the CRDs; left out, one is made")
    parser.add_argument("--every", type=int, default=1, help="take each so many-th point only")
    parser.add_argument("--only", action="append", default=[], help="name of a scenario; may be repeated")
    asked = parser.parse_args()
    with nullcontext(asked.kubeconfig) if asked.kubeconfig else api_server() as kubeconfig_file:
        began = time.monotonic()
        found = asyncio.run(sweep(kubeconfig_file, asked.every, tuple(asked.only)))
    for text in (*found.violations, *found.different):
        print(text, file=sys.stderr)
    figures = {
        "points": found.points,
        "converged": found.converged,
        "violations": len(found.violations),
        "writes_per_scenario": found.writes,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figures))
    return 0 if found.converged == found.points and not found.violations else 1


if __name__ == "__main__":
    sys.exit(main())
