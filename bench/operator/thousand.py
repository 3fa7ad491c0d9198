"""N ModelDeployments on one side: from nothing, cold start, event to status, idle, memory."""

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from bench.operator import rig
from bench.operator.api import Api, many
from bench.operator.data_plane import data_plane
from bench.operator.observer import Name, Observer
from bench.operator.process import Running, control_plane_cpu_seconds, running
from learnloop_api import names
from learnloop_operator.kube.kinds import DEPLOYMENT, MODEL_DEPLOYMENT
from learnloop_operator.settings import Settings

PER_NAMESPACE = 50
EMPTY_SECONDS = 5.0
"""For an operator with nothing to do to start up."""
RESYNC_SECONDS = Settings().resync_seconds


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    objects: int = 1000
    edits: int = 300
    creations: int = 100
    idle_seconds: float = RESYNC_SECONDS
    """As long as the default time between two resyncs: whenever it begins, the work of exactly one falls into it."""
    peer_idle_seconds: float = 30.0
    """A plain Kopf operator has no resync."""


def say(text: str) -> None:
    """A line of progress."""
    load = os.getloadavg()[0]
    print(f"{time.strftime('%H:%M:%S')} (load {load:.1f}) {text}", file=sys.stderr, flush=True)


async def measure(
    side: str, kubeconfig: Path, size: Size, meanwhile: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> dict[str, Any]:
    """All figures of one side on an empty API server; `meanwhile` runs while the operator idles."""
    async with Api(kubeconfig) as api, Observer(api, [MODEL_DEPLOYMENT]) as observer, data_plane() as url:
        figures: dict[str, Any] = {"load_average_before": round(os.getloadavg()[0], 1)}
        with running(side, kubeconfig, url) as operator:
            await asyncio.sleep(EMPTY_SECONDS)
            figures["rss_empty_mib"] = operator.memory_mib()[0]
        teams = max(1, size.objects // PER_NAMESPACE)
        await many(api.create, rig.namespaces(teams))
        spec = rig.model_deployment()
        objects = [rig.manifest(MODEL_DEPLOYMENT, i % teams, f"policy-{i:04d}", spec) for i in range(size.objects)]
        figures["floor_creations_s"] = await many(api.create, objects)
        with running(side, kubeconfig, url) as operator:
            figures["from_nothing_s"] = await observer.all_current(size.objects, operator.alive) - operator.started
            say(f"{side}: {size.objects} objects and their children from nothing: {figures['from_nothing_s']:.1f} s")
            await serve(api)
            await _quiet(api)
        figures["floor_edits_s"] = await many(lambda item: _edit(api, item, 0), list(observer.generations))
        observer.forget_waits()
        server = control_plane_cpu_seconds(kubeconfig)
        with running(side, kubeconfig, url) as operator:
            figures["cold_start_s"] = await observer.all_current(size.objects, operator.alive) - operator.started
            figures["cold_start_cpu_s"] = operator.cpu_seconds()
            figures["cold_start_control_plane_cpu_s"] = control_plane_cpu_seconds(kubeconfig) - server
            say(f"{side}: cold start with {size.objects} changed specs: {figures['cold_start_s']:.1f} s")
            figures |= await _latencies(side, api, observer, size, teams)
            await serve(api)
            await _quiet(api)
            seconds = size.idle_seconds if side == "ours" else size.peer_idle_seconds
            async with asyncio.TaskGroup() as group:
                idle = group.create_task(_idle(side, api, operator, seconds))
                if meanwhile is not None:
                    group.create_task(meanwhile())
            figures |= idle.result()
            figures["rss_mib"], figures["rss_peak_mib"] = operator.memory_mib()
            say(f"{side}: RSS {figures['rss_mib']:.0f} MiB (peak {figures['rss_peak_mib']:.0f})")
        return figures


async def serve(api: Api) -> None:
    """Be the Deployment controller and the kubelet: every pod of a policy server is ready."""

    async def ready(item: dict[str, Any]) -> None:
        count = item["spec"]["replicas"]
        status = {"replicas": count, "readyReplicas": count, "availableReplicas": count, "updatedReplicas": count}
        metadata = item["metadata"]
        status["observedGeneration"] = metadata["generation"]
        await api.merge(DEPLOYMENT, metadata["namespace"], metadata["name"], {"status": status}, "status")

    items, _ = await api.list(DEPLOYMENT)
    ours = [item for item in items if names.LABEL_DEPLOYMENT in (item["metadata"].get("labels") or {})]
    await many(ready, [item for item in ours if not (item.get("status") or {}).get("readyReplicas")])


async def _edit(api: Api, item: Name, number: int) -> None:
    await api.merge(MODEL_DEPLOYMENT, item[1], item[2], rig.edit(number))


async def _quiet(api: Api) -> None:
    """Wait for three seconds without a write."""
    before, since = -1, time.monotonic()
    while time.monotonic() - since < 3.0:
        now = await api.writes()
        if now != before:
            before, since = now, time.monotonic()
        await asyncio.sleep(0.3)


async def _latencies(side: str, api: Api, observer: Observer, size: Size, teams: int) -> dict[str, float]:
    """One object at a time among the many: change its spec, or create it, and see its status follow."""
    draw = random.Random(1)
    keys = sorted(observer.generations)
    edits = [
        await _follow(observer, item, _edit(api, item, i + 1))
        for i, item in enumerate(draw.choices(keys, k=size.edits))
    ]
    creations = []
    for i in range(size.creations):
        fresh = rig.manifest(MODEL_DEPLOYMENT, i % teams, f"fresh-{i:04d}", rig.model_deployment())
        item = ("ModelDeployment", fresh["metadata"]["namespace"], fresh["metadata"]["name"])
        creations.append(await _follow(observer, item, api.create(fresh)))
    figures = {
        **spread("event_to_status", edits + creations),
        **spread("edit_to_status", edits),
        **spread("creation_to_status", creations),
    }
    say(f"{side}: event to status: {json.dumps(figures)}")
    return figures


async def _follow(observer: Observer, item: Name, change: Any) -> float:
    """Seconds from the event of `change` to the event of the status that has observed it."""
    observer.forget_waits()
    await change
    deadline = time.monotonic() + 60.0
    while item not in observer.caught_up:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{item}: no status within 60 s")
        await asyncio.sleep(0.002)
    await asyncio.sleep(0.01)
    return observer.waits[item]


def spread(name: str, values: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    cuts = quantiles(values, n=100, method="inclusive")
    return {
        f"{name}_p50_s": round(cuts[49], 4),
        f"{name}_p99_s": round(cuts[98], 4),
        f"{name}_max_s": round(max(values), 4),
    }


async def _idle(side: str, api: Api, operator: Running, seconds: float) -> dict[str, float]:
    (writes, renewals), cpu, started = await api.writes_and_renewals(), operator.cpu_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    elapsed = time.monotonic() - started
    writes_after, renewals_after = await api.writes_and_renewals()
    figures = {
        "idle_writes_per_minute": (writes_after - writes) * 60.0 / elapsed,
        "idle_lease_writes_per_minute": round((renewals_after - renewals) * 60.0 / elapsed, 1),
        "idle_cpu_percent": round((operator.cpu_seconds() - cpu) / elapsed * 100.0, 2),
    }
    say(f"{side}: idle for {elapsed:.0f} s: {json.dumps(figures)}")
    return figures
