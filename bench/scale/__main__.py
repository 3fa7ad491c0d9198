"""`make bench-scale`: the operator on a cluster of 500 nodes. Progress on stderr, one JSON object as the last line.

    make bench-scale                        # 500 nodes, 2,000 agents, 10,000 pods
    make bench-scale NODES=50 AGENTS=200    # a smaller one; PODS follows, five for each agent
    make bench-scale NODES=5000             # a night's

The API server, etcd, the scheduler and the controllers of Deployments and nodes are Kubernetes' own; kwok v0.8.0 plays
the kubelets. The operator makes a ModelDeployment and an actor for each LearningAgent, whose pods the scheduler places;
the agents wait for experience. Each team has a ModelDeployment of its own. Other pods come with a node. In this order:

    filled      seconds until nodes, pods, agents and ModelDeployments are there and each of them serves
    settled     cores and memory of the operator over `--settled` seconds without any change
    caught up   the operator ends, each agent and each team's ModelDeployment is edited, and it starts again: seconds
                until each status has seen its newest generation
    rollback   seconds from the canary's first failure until it has no weight (rollbacks.py), here and, before all else
                and alone on the machine, in a small cluster

The figures of a busy machine are too high; `load_average` says how busy it was.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from bench.operator import rig
from bench.operator.api import Api, many
from bench.operator.control_plane import control_plane, version
from bench.operator.data_plane import data_plane
from bench.operator.observer import Observer
from bench.operator.process import Running, cpu_seconds, running
from bench.operator.thousand import say, spread
from bench.scale.fleet import TEAMS_OWN, Fleet, count_pods, fill, none_left, unready_deployments
from bench.scale.goals import judged
from bench.scale.rollbacks import roll_back_all, site
from bench.scale.simulated_nodes import simulated_nodes
from learnloop_operator.kube.kinds import LEARNING_AGENT, MODEL_DEPLOYMENT
from learnloop_operator.settings import Settings

SMALL = Fleet(nodes=5, agents=10, pods=50)
PODS_AN_AGENT = 5
PARTS = ("settled", "rollback")
QUIET_SECONDS = 20.0
"""Between the last change and the measurement of a settled operator."""

Figures = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Exit code 0 when everything was measured and met its goal."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is stopped, too
    fleet = Fleet(options.nodes, options.agents, options.pods or PODS_AN_AGENT * options.agents)
    figures: Figures = {"nodes": fleet.nodes, "agents": fleet.agents, "pods": fleet.pods, "failed": {}}
    try:
        if "rollback" in options.only:
            figures |= asyncio.run(_small(options))
        with control_plane() as kubeconfig, simulated_nodes(kubeconfig) as components:
            figures["kubernetes"] = version(kubeconfig)
            asyncio.run(_measure(kubeconfig, components, fleet, options, figures))
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # what was measured until then is kept
        figures["failed"]["bench"] = f"{type(error).__name__}: {error}"[:2000]
        say(f"stopped: {figures['failed']}")
    figures |= judged(figures) | {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 1)}
    print(json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in figures.items()}))
    return int(bool(figures["failed"]) or bool(figures["goals_missed"]))


async def _measure(
    kubeconfig: Path, components: dict[str, int], fleet: Fleet, options: argparse.Namespace, figures: Figures
) -> None:
    async with Api(kubeconfig) as api:
        figures |= await fill(api, fleet)
        async with data_plane() as url, Observer(api, [LEARNING_AGENT, MODEL_DEPLOYMENT]) as observer:
            if "settled" in options.only:
                figures |= await _settled(kubeconfig, api, observer, fleet, url, options.settled)
            else:
                await _serving(kubeconfig, api, observer, fleet, url)
            figures |= await count_pods(api)
            figures |= {f"{name}_rss_mib": _rss_mib(pid) for name, pid in _parts(kubeconfig, components).items()}
        if "rollback" in options.only:
            figures |= await _rollbacks(kubeconfig, options, "the large cluster")
            figures |= {
                f"rollback_{p}_ratio": figures[f"rollback_{p}_s"] / figures[f"small_rollback_{p}_s"]
                for p in ("p50", "p99")
            }
    figures |= {f"{name}_cpu_s": cpu_seconds(pid) for name, pid in _parts(kubeconfig, components).items()}


async def _serving(kubeconfig: Path, api: Api, observer: Observer, fleet: Fleet, url: str) -> None:
    """All objects are there and each model serves."""
    with running("ours", kubeconfig, url) as operator:
        await _create(api, observer, fleet, operator)


async def _create(api: Api, observer: Observer, fleet: Fleet, operator: Running) -> None:
    async def not_serving() -> int:
        served = sum(phase == "Healthy" for name, phase in observer.phases.items() if name[0] == MODEL_DEPLOYMENT.kind)
        return fleet.deployments - served

    await many(api.create, [*fleet.learning_agents(), *fleet.model_deployments()])
    await observer.all_current(fleet.agents + fleet.deployments, operator.alive)
    await none_left("ModelDeployments to serve", not_serving, operator.alive)
    await none_left("Deployments without their pods", lambda: unready_deployments(api), operator.alive)


async def _settled(kubeconfig: Path, api: Api, observer: Observer, fleet: Fleet, url: str, seconds: float) -> Figures:
    figures: Figures = {}
    with running("ours", kubeconfig, url) as operator:
        started = time.monotonic()
        await _create(api, observer, fleet, operator)
        figures["filled_s"] = time.monotonic() - started
        say(f"{fleet.agents} agents wait, {fleet.deployments} ModelDeployments serve after {figures['filled_s']:.0f} s")
    # What an agent made is the agent's; people edit the rest.
    edits = [name for name in observer.generations if name[0] == LEARNING_AGENT.kind or name[2] == TEAMS_OWN]
    edit = {LEARNING_AGENT.kind: rig.agent_edit(1_000_000), MODEL_DEPLOYMENT.kind: rig.edit(1)}
    kinds = {kind.kind: kind for kind in (LEARNING_AGENT, MODEL_DEPLOYMENT)}
    await many(lambda name: api.merge(kinds[name[0]], name[1], name[2], edit[name[0]]), edits)
    observer.forget_waits()
    with running("ours", kubeconfig, url) as operator:
        figures["caught_up_s"] = (
            await observer.all_current(fleet.agents + fleet.deployments, operator.alive) - operator.started
        )
        figures["caught_up_cpu_s"] = operator.cpu_seconds()
        say(f"restarted with {len(edits)} changed specs: caught up after {figures['caught_up_s']:.1f} s")
        await asyncio.sleep(QUIET_SECONDS)
        (writes, _), cpu, began = await api.writes_and_renewals(), operator.cpu_seconds(), time.monotonic()
        starved = operator.cpu_wait_seconds()
        while time.monotonic() - began < seconds:
            operator.alive()
            await asyncio.sleep(5.0)
        elapsed = time.monotonic() - began
        after, _ = await api.writes_and_renewals()
        figures["settled_seconds"] = elapsed
        figures["settled_cores"] = (operator.cpu_seconds() - cpu) / elapsed
        figures["settled_waited_for_a_core_s"] = operator.cpu_wait_seconds() - starved
        figures["settled_writes_per_minute"] = (after - writes) * 60.0 / elapsed
        figures["settled_rss_mib"], figures["settled_rss_peak_mib"] = operator.memory_mib()
        say(f"settled for {elapsed:.0f} s: {json.dumps({key: round(value, 3) for key, value in figures.items()})}")
    return figures


async def _small(options: argparse.Namespace) -> Figures:
    """The small cluster's rollbacks, with the machine for itself."""
    say(f"rollbacks among {SMALL.nodes} nodes and {SMALL.agents} agents, before the large cluster is made")
    with control_plane() as kubeconfig, simulated_nodes(kubeconfig):
        async with Api(kubeconfig) as api, Observer(api, [LEARNING_AGENT, MODEL_DEPLOYMENT]) as observer:
            await fill(api, SMALL)
            async with data_plane() as url:
                await _serving(kubeconfig, api, observer, SMALL, url)
        return await _rollbacks(kubeconfig, options, "the small cluster", "small_")


async def _rollbacks(kubeconfig: Path, options: argparse.Namespace, name: str, prefix: str = "") -> Figures:
    async with site(name, kubeconfig) as made:
        await roll_back_all(made, options.canaries, options.turns)
        waited, worked = made.operator.cpu_wait_seconds(), made.operator.cpu_seconds()
    figures = spread(f"{prefix}rollback", made.seconds)
    figures[f"{prefix}rollback_waited_for_a_core_s"] = waited
    figures[f"{prefix}rollback_operator_cpu_s"] = worked
    figures[f"{prefix}rollbacks"] = len(made.seconds)
    say(json.dumps(figures))
    return figures


def _parts(kubeconfig: Path, components: dict[str, int]) -> dict[str, int]:
    """All processes of the cluster by name."""
    base = {file.stem: int(file.read_text()) for file in (kubeconfig.parent / "run").glob("*.pid")}
    return {name.replace("-", "_"): pid for name, pid in {**base, **components}.items()}


def _rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=_count, default=500, help="nodes that kwok plays (%(default)s)")
    parser.add_argument("--agents", type=_count, default=2000, help="LearningAgents (%(default)s)")
    parser.add_argument("--pods", type=_count, help="pods in all; five for each agent if left out")
    parser.add_argument(
        "--settled",
        type=float,
        default=Settings().resync_seconds,
        help="seconds in which a settled operator is watched; one resync if left out (%(default)s)",
    )
    parser.add_argument("--canaries", type=_count, default=10, help="canaries side by side (%(default)s)")
    parser.add_argument("--turns", type=_count, default=10, help="rollbacks of each, in each cluster (%(default)s)")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part alone (may be repeated)")
    options = parser.parse_args(arguments)
    options.only = options.only or list(PARTS)
    if options.pods is not None and options.pods < 2 * options.agents:
        parser.error(f"--pods is {options.pods}: each of {options.agents} agents has two; ask for more")
    return options


def _count(text: str) -> int:
    if text.isdecimal() and 0 < int(text) <= 1_000_000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1,000,000")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
