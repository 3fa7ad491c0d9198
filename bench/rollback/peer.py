"""Breaches of Flagger's canaries at its fastest: the same server, gateway, traffic and Prometheus."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.rollback.breaching import Canary, in_phase
from bench.rollback.ours import REQUESTED
from bench.rollback.rig import NAMESPACE, Rig, established, run
from bench.rollback.weights import Weights
from go_programs import go_build

VERSION = "v1.36.1"
WEIGHT, INTERVAL = 50, 10
"""Percent, and seconds: no shorter interval is accepted."""
CALM_SECONDS = float(INTERVAL)
"""A breach begins up to so long after the canary got its weight: any phase of the interval."""
REVISION = "aaaaaaaa"
_PODS = '{namespace="{{ namespace }}",pod=~"{{ target }}-[0-9a-z]+-[0-9a-z]+",verb="infer"}'
SUCCESS = (
    f"100 * (1 - sum(increase(learnloop_policy_request_errors_total{_PODS}[{{{{ interval }}}}]))"
    f" / sum(increase(learnloop_policy_request_duration_seconds_count{_PODS}[{{{{ interval }}}}])))"
)


PACKAGE = "github.com/fluxcd/flagger/cmd/flagger"
FLAGGER = go_build.Module("flagger", {"flagger": PACKAGE}, sources=Path(__file__).parent)
"""The bench's own go.mod: a peer is nothing that the cluster of the product knows of."""


def build() -> Path:
    """The program, built once for each go.mod and go.sum."""
    return go_build.ensure(FLAGGER, FLAGGER.programs)["flagger"]


def name_of(index: int) -> str:
    return f"peer-{index}"


@asynccontextmanager
async def running(rig: Rig, kubeconfig: str, log: Path) -> AsyncIterator[None]:
    """Flagger on this machine, against the cluster, for the time of the block."""
    module = go_build.module_folder(FLAGGER, "github.com/fluxcd/flagger")
    crds = module / "artifacts" / "flagger" / "crd.yaml"
    run([*rig.kubectl, "apply", "--server-side", "--force-conflicts", "-f", str(crds)])
    established(rig.kubectl, "crd/canaries.flagger.app")
    flags = [f"-kubeconfig={kubeconfig}", f"-metrics-server={rig.prometheus}", "-mesh-provider=gatewayapi:v1"]
    options = [f"-namespace={NAMESPACE}", "-port=18099", "-log-level=info", "-selector-labels=app"]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(build(), *flags, *options, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            await process.wait()


def _routing(name: str) -> str:
    arm = f'{{"revision": "{REVISION}", "role": "stable", "weight": 100, "url": "http://{name}"}}'
    return f'{{"model_deployment": "{name}", "generation": 1, "arms": [{arm}]}}'


def objects(rig: Rig, index: int) -> list[dict[str, Any]]:
    """A Canary at its floor, and the metric it looks at."""
    name = name_of(index)
    api = "flagger.app/v1beta1"
    metric = {"name": "success", "templateRef": {"name": "success"}, "thresholdRange": {"min": 95}}
    provider = {"type": "prometheus", "address": rig.prometheus}
    return [
        {
            "apiVersion": api,
            "kind": "MetricTemplate",
            "metadata": {"name": "success"},
            "spec": {"provider": provider, "query": SUCCESS},
        },
        {
            "apiVersion": api,
            "kind": "Canary",
            "metadata": {"name": name},
            "spec": {
                "provider": "gatewayapi:v1",
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "progressDeadlineSeconds": 180,
                "service": {
                    "port": 8080,
                    "targetPort": 8080,
                    "hosts": [f"{name}.example.com"],
                    "gatewayRefs": [{"name": "gateway", "namespace": "gateway"}],
                },
                "analysis": {
                    "interval": f"{INTERVAL}s",
                    "threshold": 1,
                    "stepWeights": list(range(WEIGHT, WEIGHT + 20)),
                    "metrics": [{**metric, "interval": f"{INTERVAL}s"}],
                },
            },
        },
    ]


def server(rig: Rig, index: int, release: int, image: str) -> list[dict[str, Any]]:
    """The policy server as Flagger's target; release 0 is the honest first model."""
    return policy_server(rig.model, name_of(index), release, image)


def policy_server(faulty: dict[str, str], name: str, release: int, image: str) -> list[dict[str, Any]]:
    """Its routing table, which leads to itself, and its Deployment."""
    model = {"uri": "uniform://discrete/2?observations=4", "sha256": ""} if release == 0 else faulty
    environment = {
        "LEARNLOOP_MODEL_DEPLOYMENT": name,
        "LEARNLOOP_REVISION": REVISION,
        "LEARNLOOP_MODEL_URI": model["uri"],
        "LEARNLOOP_MODEL_SHA256": model["sha256"],
        "LEARNLOOP_ROUTING_MODE": "gateway",
        "LEARNLOOP_ROUTING_FILE": "/etc/routing/routing.json",
        "LEARNLOOP_NAMESPACE": NAMESPACE,
        "LEARNLOOP_DATA_URL": "http://learnloop-data.learnloop-system.svc:8080",
        "RELEASE": str(release),
    }
    token = {"serviceAccountToken": {"audience": "learnloop", "path": "token", "expirationSeconds": 3600}}
    container = {
        "name": "policy-server",
        "image": image,
        "imagePullPolicy": "Never",
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080}, "periodSeconds": 2},
        "resources": REQUESTED,
        "volumeMounts": [
            {"name": "token", "mountPath": "/var/run/secrets/learnloop.dev", "readOnly": True},
            {"name": "routing", "mountPath": "/etc/routing"},
        ],
    }
    volumes = [
        {"name": "token", "projected": {"sources": [token]}},
        {"name": "routing", "configMap": {"name": f"{name}-table"}},
    ]
    labels = {"app": name, "app.kubernetes.io/part-of": "learnloop"}
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"}
    template = {
        "metadata": {"labels": labels, "annotations": scraped},
        "spec": {"containers": [container], "volumes": volumes},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{name}-table"},
            "data": {"routing.json": _routing(name)},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        },
    ]


async def initialized(rig: Rig, indices: range) -> None:
    """Wait until Flagger has made its primaries and routes."""
    for index in indices:
        await _in_phase(rig, index, "Initialized")


async def _in_phase(rig: Rig, index: int, phase: str) -> None:
    await in_phase(rig.kubectl, f"canary/{name_of(index)}", phase)


def canary(rig: Rig, weights: Weights, index: int, image: str) -> Canary:
    """A Canary of Flagger's, as breaches go through it.

    It writes weight 0 first and what it has judged afterwards: a release in between is taken for the one that failed,
    and never tried.
    """
    name = name_of(index)
    return Canary(
        side="flagger",
        name=name,
        weight=WEIGHT,
        calm_seconds=CALM_SECONDS,
        patience_seconds=120,
        release=lambda release: rig.apply(server(rig, index, release, image)[1]),
        has_weight=lambda: weights.route.get(name, 0) >= WEIGHT,
        has_none=lambda: weights.route.get(name) == 0,
        settled=lambda: _in_phase(rig, index, "Failed"),
    )
