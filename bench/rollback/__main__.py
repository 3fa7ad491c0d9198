"""Breach to weight 0, learnloop, Argo Rollouts and Flagger: progress on standard output, one JSON object last.

[TLS=1] python -m bench.rollback [CONCURRENT [ROUNDS [PEER_ROUNDS]]]

By default 60 breaches of ours (3 ModelDeployments at a time, 20 each), as many of Argo Rollouts' (3 Rollouts), and 21
of Flagger's (3 Canaries at a time, 7 each). Ours and Argo Rollouts are asked every second; Flagger takes ten at least.
`breaches`, `argo_breaches` and `peer_breaches` are the sizes of the samples; a p99 of fewer than 100 is their greatest.

TLS=1: then the installation changes to `tls.mode: self-signed`, and ours go through as many breaches again. A Gateway
speaks plain HTTP to policy servers either way; the operator asks the data plane and Prometheus by TLS.
"""

import asyncio
import dataclasses
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from bench.arguments import numbers
from bench.rollback import argo, ours, peer
from bench.rollback.breaching import breaches, playing
from bench.rollback.figures import Breach, ratio, summary
from bench.rollback.model import brittle
from bench.rollback.rig import NAMESPACE, Rig, enter, fresh_namespace, run
from bench.rollback.traffic import Traffic
from bench.rollback.weights import Weights
from bench.tls_next_to_plain import MOST
from cluster.addons.envoy import IMAGE as ENVOY_IMAGE
from cluster.addons.gateway import CONTOUR_IMAGE
from demo import install
from demo.narrator import Narrator
from demo.settings import Settings
from go_programs.go_build import KUBERNETES_VERSION
from learnloop_operator.kube.fenced_client import KubeClient
from testing.operators.api_access import find

RPS = 30.0
SERVING = "localhost/learnloop/serving:dev"
GOALS = {"ours_p50_s": 3.0, "ours_p99_s": 10.0}


async def measure(
    kubectl: list[str], concurrent: int, rounds: int, peer_rounds: int, records: list[Breach]
) -> dict[str, Any]:
    """All sides, one after the other: the machine is not big enough for two at a time. `records` gets ours."""
    kube = KubeClient(find())
    fresh_namespace(kubectl)
    rig = await enter(kubectl, kube, brittle())
    weights = Weights(kube, NAMESPACE)
    flagger, argos = list[Breach](), list[Breach]()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        watching = asyncio.create_task(weights.run())
        try:
            await _ours(rig, weights, session, concurrent, rounds, records)
            await _argo(rig, weights, session, concurrent, rounds, argos)
            await _flagger(rig, weights, session, concurrent, peer_rounds, flagger)
        finally:
            watching.cancel()
            run([*kubectl, "delete", "namespace", NAMESPACE, "--wait=false"])
            await kube.close()
    return {
        **summary("ours", records),
        "breaches": len(records),
        **summary("peer", flagger),
        "peer_breaches": len(flagger),
        **ratio(flagger, records),
        **summary("argo", argos),
        "argo_breaches": len(argos),
        **ratio(argos, records, "argo_"),
        "concurrent": concurrent,
        "requests_per_second_each": RPS,
        "canary_weight": ours.WEIGHT,
        "canary_failing_share": 0.5,
        "calm_before_breach_up_to_s": ours.CALM_SECONDS,
        "peer_calm_before_breach_up_to_s": peer.CALM_SECONDS,
        "peer_interval_s": peer.INTERVAL,
        "argo_calm_before_breach_up_to_s": argo.CALM_SECONDS,
        "argo_interval_s": argo.INTERVAL,
    }


async def encrypted(kubectl: list[str], concurrent: int, rounds: int, plain: list[Breach]) -> dict[str, Any]:
    """Ours where the parts speak TLS, and how many times as long they take as `plain` took."""
    kube, records = KubeClient(find()), list[Breach]()
    rig = await enter(kubectl, kube, brittle("brittle by TLS"), tls=True)
    weights = Weights(kube, NAMESPACE)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        watching = asyncio.create_task(weights.run())
        try:
            await _ours(rig, weights, session, concurrent, rounds, records)
        finally:
            watching.cancel()
            run([*kubectl, "delete", "namespace", NAMESPACE, "--wait=false"])
            await kube.close()
    return {**summary("tls", records), "tls_breaches": len(records), **ratio(records, plain, "tls_over_plain_")}


async def _ours(
    rig: Rig, weights: Weights, session: aiohttp.ClientSession, concurrent: int, rounds: int, records: list[Breach]
) -> None:
    print(f"learnloop: {concurrent} ModelDeployments, {rounds} breaches each", flush=True)
    rig.apply(*(ours.deployment(rig, index, 0) for index in range(concurrent)))
    names = {ours.name_of(index) for index in range(concurrent)}
    await weights.until(lambda: names <= weights.route.keys() & weights.listed.keys(), 180, "every first model serving")
    users = [Traffic(session, rig.gateway, ours.name_of(index), RPS) for index in range(concurrent)]
    async with playing(users), asyncio.TaskGroup() as group:
        for index, traffic in enumerate(users):
            canary = ours.canary(rig, weights, index)
            group.create_task(breaches(canary, weights, traffic, rounds, records))
    print(f"  {sum(one.sent for one in users)} requests in all", flush=True)
    run([*rig.kubectl, "delete", "-n", NAMESPACE, "modeldeployments", "--all", "--wait"])


async def _argo(
    rig: Rig, weights: Weights, session: aiohttp.ClientSession, concurrent: int, rounds: int, records: list[Breach]
) -> None:
    print(f"argo rollouts {argo.VERSION}: {concurrent} Rollouts, {rounds} breaches each", flush=True)
    with tempfile.TemporaryDirectory(prefix="learnloop-argo-") as folder:
        async with argo.running(rig.kubectl, os.environ["KUBECONFIG"], Path(folder)):
            for index in range(concurrent):
                rig.apply(*argo.objects(rig.prometheus, index), *argo.server(rig.model, index, 0, SERVING))
            for index in range(concurrent):
                await argo.in_phase(rig.kubectl, index, "Healthy")
            users = [Traffic(session, rig.gateway, argo.name_of(index), RPS) for index in range(concurrent)]
            async with playing(users), asyncio.TaskGroup() as group:
                for index, traffic in enumerate(users):
                    canary = argo.canary(rig, weights, index, SERVING)
                    group.create_task(breaches(canary, weights, traffic, rounds, records))
            run([*rig.kubectl, "delete", "-n", NAMESPACE, "rollouts", "--all", "--wait"])


async def _flagger(
    rig: Rig, weights: Weights, session: aiohttp.ClientSession, concurrent: int, rounds: int, records: list[Breach]
) -> None:
    print(f"flagger {peer.VERSION}: {concurrent} Canaries, {rounds} breaches each", flush=True)
    log = Path(tempfile.gettempdir()) / "bench-rollback-flagger.log"
    async with peer.running(rig, os.environ["KUBECONFIG"], log):
        for index in range(concurrent):
            rig.apply(*peer.server(rig, index, 0, SERVING), *peer.objects(rig, index))
        await peer.initialized(rig, range(concurrent))
        users = [Traffic(session, rig.gateway, peer.name_of(index), RPS) for index in range(concurrent)]
        async with playing(users), asyncio.TaskGroup() as group:
            for index, traffic in enumerate(users):
                canary = peer.canary(rig, weights, index, SERVING)
                group.create_task(breaches(canary, weights, traffic, rounds, records))


def main(arguments: list[str]) -> int:
    """0 when the goals are met."""
    options = numbers(__doc__, arguments, concurrent=3, rounds=20, peer_rounds=7)
    os.environ["GATEWAY"] = "1"
    peer.build()
    argo.build()
    settings = Settings.read()
    values = (*(settings.values or (install.LOCAL_VALUES,)), Path(__file__).with_name("values.yaml"))
    kubectl = install.prepare(dataclasses.replace(settings, values=values), Narrator())
    began = time.monotonic()
    plain, goals = list[Breach](), dict(GOALS)
    figures = asyncio.run(measure(kubectl, options.concurrent, options.rounds, options.peer_rounds, plain))
    if os.environ.get("TLS") == "1":
        fresh_namespace(kubectl)  # the chart makes the certificate of its pods
        values = (*values, install.TLS_VALUES, Path(__file__).with_name("values-tls.yaml"))
        kubectl = install.prepare(dataclasses.replace(settings, values=values), Narrator())
        figures |= asyncio.run(encrypted(kubectl, options.concurrent, options.rounds, plain))
        goals |= {"tls_over_plain_ratio": MOST}
    missed = [f"{name} at most {most}: {figures[name]}" for name, most in goals.items() if figures[name] > most]
    figures |= {
        "goals_missed": missed,
        "seconds": round(time.monotonic() - began, 1),
        "peer": f"flagger {peer.VERSION}",
        "argo": f"argo rollouts {argo.VERSION}",
        "kubernetes": KUBERNETES_VERSION,
        "gateway": f"{CONTOUR_IMAGE.split('/')[-1]}, {ENVOY_IMAGE.split('/')[-1]}",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    print(json.dumps(figures))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
