"""Breaches of Argo Rollouts' canaries: the same server, gateway, traffic and Prometheus, as often asked as ours is.

Argo Rollouts has no shortest interval. Its own router for the Gateway API is not to be had from the module proxy, so
`argo_rollouts/router` does that part by Argo Rollouts' plugin protocol.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.rollback import breaching, peer
from bench.rollback.breaching import Canary
from bench.rollback.rig import NAMESPACE, Rig, established, run
from bench.rollback.weights import Weights
from go_programs import go_build

VERSION = "v1.10.2"
MODULE = "github.com/argoproj/argo-rollouts"
WEIGHT, INTERVAL = 50, 1
"""Percent, and seconds between two questions: as many as the fast lane takes, and Prometheus here to scrape."""
CALM_SECONDS = 3.0
"""As ours: a breach begins up to so long after the canary got its weight."""
WINDOW = 5
"""Seconds that a question looks back on: a rate takes two scrapes, and one of them may be late."""
PLUGIN = "learnloop/gateway-api"
API = "argoproj.io/v1alpha1"
_PODS = '{namespace="%s",pod=~"%s-{{args.hash}}-.*",verb="infer"}'
CRDS = ("rollouts", "analysisruns", "analysistemplates", "clusteranalysistemplates", "experiments")


ARGO_ROLLOUTS = go_build.Module(
    "argo_rollouts",
    {"rollouts-controller": f"{MODULE}/cmd/rollouts-controller", "router": "./router"},
    go="1.27.3",
    sources=Path(__file__).parent,
)
"""The bench's own go.mod, and a program of ours in its folder."""


def build() -> dict[str, Path]:
    """Both programs, built once for each go.mod, go.sum and main.go."""
    return go_build.ensure(ARGO_ROLLOUTS, ARGO_ROLLOUTS.programs)


def name_of(index: int) -> str:
    return f"argo-{index}"


@asynccontextmanager
async def running(kubectl: list[str], kubeconfig: str, folder: Path) -> AsyncIterator[Path]:
    """The controller on this machine, against the cluster, for the time of the block; yields its log."""
    programs = build()
    manifests = go_build.module_folder(ARGO_ROLLOUTS, MODULE) / "manifests" / "crds"
    run([*kubectl, "apply", "--server-side", "--force-conflicts", "-k", str(manifests)])
    established(kubectl, *(f"crd/{kind}.argoproj.io" for kind in CRDS))
    settings = f"- name: {PLUGIN}\n  location: file://{programs['router']}\n"
    wanted = [f"--from-literal=trafficRouterPlugins={settings}", "-n", NAMESPACE]
    run([*kubectl, "create", "configmap", "argo-rollouts-config", *wanted])
    flags = [f"--kubeconfig={kubeconfig}", f"--namespace={NAMESPACE}", "--namespaced", "--leader-elect=false"]
    flags += ["--metricsPort=18097", "--healthzPort=18098", "--qps=200", "--burst=400"]
    environment = os.environ | {"KUBECONFIG": kubeconfig, "POD_NAMESPACE": NAMESPACE}
    log = folder / "argo-rollouts.log"
    with log.open("wb") as output:
        # The plugin is copied into the working folder.
        process = await asyncio.create_subprocess_exec(
            programs["rollouts-controller"], *flags, env=environment, cwd=folder, stdout=output, stderr=output
        )
        try:
            yield log
        finally:
            process.terminate()
            await process.wait()


def success(name: str) -> str:
    """PromQL: percent of the canary's requests that were answered; no sample while there are none."""
    pods = _PODS % (NAMESPACE, name)
    failed = f"sum(increase(learnloop_policy_request_errors_total{pods}[{WINDOW}s]))"
    return f"100 * (1 - {failed} / sum(increase(learnloop_policy_request_duration_seconds_count{pods}[{WINDOW}s])))"


def objects(prometheus: str, index: int) -> list[dict[str, Any]]:
    """The metric, Services for both arms, and the route between them."""
    name = name_of(index)
    question = {"prometheus": {"address": prometheus, "query": success(name)}}
    metric = {
        "name": "success",
        "interval": f"{INTERVAL}s",
        "failureLimit": 0,
        "consecutiveErrorLimit": 1000,
        "successCondition": "len(result) == 0 || isNaN(result[0]) || result[0] >= 95",
        "provider": question,
    }
    arms = [f"{name}-stable", f"{name}-canary"]
    services = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": arm},
            "spec": {"selector": {"app": name}, "ports": [{"port": 8080, "targetPort": 8080}]},
        }
        for arm in arms
    ]
    backends = [{"name": arm, "port": 8080, "weight": weight} for arm, weight in zip(arms, (100, 0), strict=True)]
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name},
        "spec": {
            "parentRefs": [{"name": "gateway", "namespace": "gateway"}],
            "hostnames": [f"{name}.example.com"],
            "rules": [{"backendRefs": backends}],
        },
    }
    template = {
        "apiVersion": API,
        "kind": "AnalysisTemplate",
        "metadata": {"name": name},
        "spec": {"args": [{"name": "hash"}], "metrics": [metric]},
    }
    return [template, *services, route]


def server(model: dict[str, str], index: int, release: int, image: str) -> list[dict[str, Any]]:
    """The policy server as a Rollout; release 0 is the honest first model."""
    name = name_of(index)
    table, deployment = peer.policy_server(model, name, release, image)
    latest = {"name": "hash", "valueFrom": {"podTemplateHashValue": "Latest"}}
    canary = {
        "stableService": f"{name}-stable",
        "canaryService": f"{name}-canary",
        "trafficRouting": {"plugins": {PLUGIN: {"httpRoute": name}}},
        "steps": [{"setWeight": WEIGHT}, {"pause": {}}],
        "analysis": {"templates": [{"templateName": name}], "startingStep": 1, "args": [latest]},
    }
    spec = {**deployment["spec"], "replicas": 1, "strategy": {"canary": canary}}
    return [table, {"apiVersion": API, "kind": "Rollout", "metadata": {"name": name}, "spec": spec}]


async def in_phase(kubectl: list[str], index: int, phase: str) -> None:
    """Waits until the controller has said so."""
    await breaching.in_phase(kubectl, f"rollout/{name_of(index)}", phase)


def canary(rig: Rig, weights: Weights, index: int, image: str) -> Canary:
    """A Rollout, as breaches go through it."""
    name = name_of(index)
    return Canary(
        side="argo",
        name=name,
        weight=WEIGHT,
        calm_seconds=CALM_SECONDS,
        patience_seconds=120,
        release=lambda release: rig.apply(server(rig.model, index, release, image)[1]),
        has_weight=lambda: weights.route.get(name, 0) >= WEIGHT,
        has_none=lambda: weights.route.get(name) == 0,
        settled=lambda: in_phase(rig.kubectl, index, "Degraded"),
    )
