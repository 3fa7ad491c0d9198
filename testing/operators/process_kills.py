"""Kills whole operator processes with SIGKILL at writes of one rollout; prints one JSON object as its last line.

    PYTHONPATH=hack python -m testing.operators.process_kills [--kubeconfig FILE] [--kills N] [--mode service|gateway]

N writes of a rollout in four steps, one after another, each end the process that sends them: in turns just before the
API server sees the write and just after it has done it. Each time a new process goes on, and the end must be the end of
an undisturbed run.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testing.operators.crash_sweep import difference
from testing.operators.operator_processes import Operator, live_rig
from testing.proxies.stream_proxy import Cut
from testing.servers.kube_api_server import api_server

EVENTS = "/events"


@dataclass(slots=True)
class Killer:
    """Ends the process at writes of its choice, `every` so many, until there were `kills`."""

    operator: Operator
    kills: int
    every: int
    at: list[str]
    armed_from: int = 0

    async def __call__(self, number: int, side: str, method: str, path: str) -> None:
        wanted = "before" if len(self.at) % 2 == 0 else "after"
        due = self.armed_from and number >= self.armed_from
        if len(self.at) >= self.kills or not due or side != wanted or EVENTS in path:
            return
        self.operator.kill()
        self.armed_from = number + self.every
        self.at.append(f"{side} {self.operator.proxy.writes[number - 1]}")
        raise Cut


@dataclass(slots=True)
class Outcome:
    """`raised`: generations of the routing tables in force, in order."""

    state: dict[str, Any]
    killed_at: list[str]
    generations: list[int]
    codes: list[int]


async def run(kubeconfig: Path, folder: Path, kills: int, every: int, mode: str) -> Outcome:
    """One rollout, with so many deaths."""
    folder.mkdir(exist_ok=True)
    async with live_rig(kubeconfig, folder, mode) as rig:
        operator = await rig.operator()
        await rig.serves(0)
        killer = Killer(operator, kills, every, [])
        operator.proxy.on_write = killer
        killer.armed_from = len(operator.proxy.writes) + 1
        await rig.wish(1)
        await rig.serves(1)
        state = await rig.end_state()
        return Outcome(state, killer.at, [table.generation for table in rig.tables], operator.codes)


async def compare(
    kubeconfig: Path, folder: Path, kills: int, every: int = 1, mode: str = "service"
) -> tuple[Outcome, str]:
    """A disturbed run, and where it ended differently from the undisturbed one ("" when it did not)."""
    undisturbed = await run(kubeconfig, folder / "undisturbed", 0, 1, mode)
    killed = await run(kubeconfig, folder / "killed", kills, every, mode)
    return killed, "" if killed.state == undisturbed.state else difference(undisturbed.state, killed.state)


def main() -> int:
    """Exit code 1 when the end is another, or there were fewer kills than asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kubeconfig", type=Path, help="an API server with the CRDs; left out, one is made")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--mode", choices=("service", "gateway"), default="service", help="who draws the arm")
    options, began = parser.parse_args(), time.monotonic()
    made = nullcontext(options.kubeconfig) if options.kubeconfig else api_server()
    with made as kubeconfig, tempfile.TemporaryDirectory(prefix="learnloop-kills-") as folder:
        result, different = asyncio.run(compare(kubeconfig, Path(folder), options.kills, mode=options.mode))
    for text in (*result.killed_at, different):
        print(text, file=sys.stderr)
    figures = {
        "mode": options.mode,
        "kills": len(result.killed_at),
        "kills_before_the_write": sum(text.startswith("before") for text in result.killed_at),
        "converged": not different,
        "tables_in_order": result.generations == sorted(set(result.generations)),
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(figures))
    return int(bool(different) or len(result.killed_at) < options.kills)


if __name__ == "__main__":
    sys.exit(main())
