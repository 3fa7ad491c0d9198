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
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crash_scenarios import SCENARIOS, Scenario
from crash_world import World
from own_api_server import api_server
from served_traffic import Provider

from learnloop_operator.adapters import kubeconfig
from learnloop_operator.adapters.kubeconfig import Connection

MOST_TURNS = 400
FEWEST = 150
"""Points of a sweep that leaves out none."""
AT_ONCE = 12


@dataclass(slots=True)
class Outcome:
    """How one run ended."""

    state: dict[str, Any]
    writes: int
    log: list[str]
    violations: list[str]
    deaths: int
    contested: int
    """Routing tables that had the generation of another one."""


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
    found = Outcome(
        await world.end_state(), ledger.total, ledger.log, ledger.violations, world.deaths, ledger.contested
    )
    await world.end()
    return found


@dataclass(slots=True)
class Sweep:
    """All runs of all scenarios. `points`: deaths that happened; `missed`: those that were wanted and did not."""

    points: int = 0
    converged: int = 0
    contested: int = 0
    violations: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    writes: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Each death happened, and nothing came of it."""
        return not (self.missed or self.different or self.violations or self.contested)


async def sweep(path: Path, every: int = 1, names: Sequence[str] = ()) -> Sweep:
    """Kill at each `every`-th point of each scenario (all, or those named), in each from another point on."""
    connection, provider, result = kubeconfig.from_kubeconfig(path), Provider(), Sweep()
    await provider.start()
    for number, item in enumerate(SCENARIOS):
        if not names or item.name in names:
            await _sweep_one(connection, provider, item, slice(number % every, None, every), result)
    await provider.stop()
    return result


async def _sweep_one(
    connection: Connection, provider: Provider, scenario: Scenario, taken: slice, result: Sweep
) -> None:
    undisturbed = await run(connection, provider, scenario)
    result.writes[scenario.name] = undisturbed.writes
    result.violations += [f"{scenario.name}, undisturbed: {text}" for text in undisturbed.violations]
    points = [(number, side) for number in range(1, undisturbed.writes + 1) for side in ("before", "after")]
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(point: tuple[int, str]) -> None:
        async with turn:
            found = await run(connection, provider, scenario, point)
        where = f"{scenario.name}, killed {point[1]} write {point[0]} ({undisturbed.log[point[0] - 1]})"
        if found.deaths != 1:
            result.missed.append(f"{where}: it died {found.deaths} times")
            return
        result.points += 1
        result.contested += found.contested
        result.violations += [f"{where}: {text}" for text in found.violations]
        if found.state == undisturbed.state:
            result.converged += 1
        else:
            result.different.append(f"{where}: {difference(undisturbed.state, found.state)}")

    await asyncio.gather(*(one(point) for point in points[taken]))


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
    """Exit code 1 when a death that was wanted did not happen, a run did not converge or a write broke a promise;
    and when everything was to be taken and that were fewer than FEWEST points."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kubeconfig", type=Path, help="an API server with the CRDs; left out, one is made")
    parser.add_argument("--every", type=int, default=1, help="take each so many-th point only")
    choices = [item.name for item in SCENARIOS]
    parser.add_argument("--only", action="append", default=[], choices=choices, help="may be repeated")
    asked = parser.parse_args()
    with nullcontext(asked.kubeconfig) if asked.kubeconfig else api_server() as kubeconfig_file:
        began = time.monotonic()
        found = asyncio.run(sweep(kubeconfig_file, asked.every, asked.only))
    for text in (*found.violations, *found.different, *found.missed):
        print(text, file=sys.stderr)
    figures = {
        "crash_points": found.points,
        "crash_points_wanted_at_least": 0 if asked.only or asked.every > 1 else FEWEST,
        "crash_points_never_reached": len(found.missed),
        "crash_converged_share": round(found.converged / found.points, 4) if found.points else 0.0,
        "two_decisions_for_one_generation": found.contested,
        "violations": len(found.violations),
        "writes_per_scenario": found.writes,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figures))
    enough = 0 < found.points >= figures["crash_points_wanted_at_least"]
    return 0 if enough and found.good else 1


if __name__ == "__main__":
    sys.exit(main())
