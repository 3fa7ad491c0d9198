"""Kills the operator before and after every API write of whole rollouts; prints one JSON object as its last line.

    PYTHONPATH=hack python -m testing.operators.crash_sweep [--kubeconfig FILE] [--every N] [--only SCENARIO]

Standard error says every half minute how far it is, and names each wrong point as soon as it is reached.

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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kubernetes_asyncio.client import Configuration

from testing.operators.api_access import from_kubeconfig
from testing.operators.crash_rig import Rig
from testing.operators.crash_scenarios import SCENARIOS, Scenario
from testing.operators.served_traffic import Provider
from testing.servers.kube_api_server import api_server

MOST_TURNS = 400
FEWEST = 150
"""Points of a sweep that leaves out none."""
AT_ONCE = 16
SAYS_EVERY = 30.0
"""Seconds between two lines of progress."""


class Stuck(Exception):
    """A run that does not come to its end."""


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
    connection: Configuration,
    provider: Provider,
    scenario: Scenario,
    kill: tuple[int, str] | None = None,
    through: Configuration | None = None,
) -> Outcome:
    """The whole story once; the operator reaches the API server `through` something else, if given.

    Raises:
        Stuck: it did not end within MOST_TURNS looks.
    """
    rig = Rig(connection, provider, scenario.spec, through)
    rig.blind = scenario.blind
    try:
        await rig.begin()
        rig.ledger.kill = kill
        return await _played(rig, scenario, through is not None)
    finally:
        await rig.end()


async def _played(rig: Rig, scenario: Scenario, disturbed: bool) -> Outcome:
    turns = 0
    for act, done in scenario.chapters:
        await act(rig)
        while not done(rig):
            await rig.turn()
            if disturbed:
                await rig.observe()
            turns += 1
            if turns >= MOST_TURNS:
                raise Stuck(f"not done after {MOST_TURNS} looks: {rig.ledger.status.get('verdict')}")
    for _ in range(8):
        if not await rig.turn() and not disturbed:
            break
    ledger = rig.ledger
    return Outcome(await rig.end_state(), ledger.total, ledger.log, ledger.violations, rig.deaths, ledger.contested)


@dataclass(slots=True)
class Tally:
    """The points of one scenario. `writes`: of its undisturbed run."""

    writes: int
    points: int = 0
    converged: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Sweep:
    """All runs of all scenarios. `missed`: deaths that were wanted and did not happen."""

    contested: int = 0
    violations: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    scenarios: dict[str, Tally] = field(default_factory=dict)

    @property
    def points(self) -> int:
        """Deaths that happened."""
        return sum(item.points for item in self.scenarios.values())

    @property
    def converged(self) -> int:
        """Those after which everything ended as without them."""
        return sum(item.converged for item in self.scenarios.values())

    @property
    def good(self) -> bool:
        """Each death happened, and nothing came of it."""
        return not (self.missed or self.different or self.violations or self.contested)


async def sweep(path: Path, every: int = 1, names: Sequence[str] = ()) -> Sweep:
    """Kill at each `every`-th point of each scenario (all, or those named), in each from another point on.

    Raises:
        Stuck: a run without a death does not end.
    """
    connection, provider = from_kubeconfig(path), Provider()
    await provider.start()
    taken = [(number, item) for number, item in enumerate(SCENARIOS) if not names or item.name in names]
    undisturbed = await asyncio.gather(*(run(connection, provider, item) for _, item in taken))
    sweeping = _Sweeping(connection, provider, Sweep(), time.monotonic())
    points = [
        [(write, side) for write in range(1, first.writes + 1) for side in ("before", "after")][number % every :: every]
        for (number, _), first in zip(taken, undisturbed, strict=True)
    ]
    sweeping.wanted = sum(len(some) for some in points)
    saying = asyncio.create_task(sweeping.say())
    for (_, item), first, some in zip(taken, undisturbed, points, strict=True):
        await sweeping.one(item, first, some)
    saying.cancel()
    await provider.stop()
    return sweeping.result


@dataclass(slots=True)
class _Sweeping:
    """A sweep under way."""

    connection: Configuration
    provider: Provider
    result: Sweep
    began: float
    wanted: int = 0
    turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    ended: int = 0

    async def one(self, scenario: Scenario, undisturbed: Outcome, points: Sequence[tuple[int, str]]) -> None:
        """All these points of one scenario."""
        began, tally = time.monotonic(), Tally(undisturbed.writes)
        self.result.scenarios[scenario.name] = tally
        self._wrong(self.result.violations, *(f"{scenario.name}, undisturbed: {x}" for x in undisturbed.violations))
        await asyncio.gather(*(self._point(scenario, undisturbed, point, tally) for point in points))
        tally.seconds = round(time.monotonic() - began, 1)
        print(json.dumps({"scenario": scenario.name, **asdict(tally)}), file=sys.stderr, flush=True)

    async def _point(self, scenario: Scenario, undisturbed: Outcome, point: tuple[int, str], tally: Tally) -> None:
        where = f"{scenario.name}, killed {point[1]} write {point[0]} ({undisturbed.log[point[0] - 1]})"
        async with self.turn:
            try:
                ended = await run(self.connection, self.provider, scenario, point)
            except Exception as error:  # the other points tell what they have to tell, whatever became of this one
                self._wrong(self.result.different, f"{where}: {type(error).__name__}: {error}")
                tally.points += 1
                return
            finally:
                self.ended += 1
        if ended.deaths != 1:
            self._wrong(self.result.missed, f"{where}: it died {ended.deaths} times")
            return
        tally.points += 1
        self.result.contested += ended.contested
        self._wrong(self.result.violations, *(f"{where}: {text}" for text in ended.violations))
        if ended.state == undisturbed.state:
            tally.converged += 1
        else:
            self._wrong(self.result.different, f"{where}: {difference(undisturbed.state, ended.state)}")

    def _wrong(self, kind: list[str], *texts: str) -> None:
        kind += texts
        for text in texts:
            print(text, file=sys.stderr, flush=True)

    async def say(self) -> None:
        """How far it is, again and again."""
        while True:
            await asyncio.sleep(SAYS_EVERY)
            result, seconds = self.result, time.monotonic() - self.began
            wrong = len(result.missed) + len(result.different) + len(result.violations)
            left = (self.wanted - self.ended) * seconds / max(1, self.ended)
            line = (
                f"{self.ended} of {self.wanted} points, {wrong} things wrong, {seconds:.0f} s, about {left:.0f} s left"
            )
            print(line, file=sys.stderr, flush=True)


def difference(wanted: Any, actual: Any, path: str = "") -> str:
    """The first place where two states differ."""
    if isinstance(wanted, dict) and isinstance(actual, dict):
        for key in sorted({*wanted, *actual}):
            if wanted.get(key) != actual.get(key):
                return difference(wanted.get(key), actual.get(key), f"{path}.{key}")
    if isinstance(wanted, list) and isinstance(actual, list) and len(wanted) == len(actual):
        for index, (ours, new) in enumerate(zip(wanted, actual, strict=True)):
            if ours != new:
                return difference(ours, new, f"{path}[{index}]")
    return f"{path}: {str(wanted)[:200]} became {str(actual)[:200]}"


def main() -> int:
    """Exit code 1 when a death that was wanted did not happen, a run did not converge or a write broke a promise;
    and when everything was to be taken and that were fewer than FEWEST points."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kubeconfig", type=Path, help="an API server with the CRDs; left out, one is made")
    parser.add_argument("--every", type=int, default=1, help="take each so many-th point only")
    choices = [item.name for item in SCENARIOS]
    parser.add_argument("--only", action="append", default=[], choices=choices, help="may be repeated")
    options = parser.parse_args()
    with nullcontext(options.kubeconfig) if options.kubeconfig else api_server() as kubeconfig_file:
        began = time.monotonic()
        result = asyncio.run(sweep(kubeconfig_file, options.every, options.only))
    wanted = 0 if options.only or options.every > 1 else FEWEST
    figures = {
        "crash_points": result.points,
        "crash_points_wanted_at_least": wanted,
        "crash_points_never_reached": len(result.missed),
        "crash_converged_share": round(result.converged / result.points, 4) if result.points else 0.0,
        "two_decisions_for_one_generation": result.contested,
        "violations": len(result.violations),
        "scenarios": {name: asdict(item) for name, item in result.scenarios.items()},
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figures))
    return 0 if 0 < result.points >= wanted and result.good else 1


if __name__ == "__main__":
    sys.exit(main())
