"""HTTPRoutes as the Gateway API's own definition takes them: nothing is refused, pruned or filled in."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from learnloop_api import names
from learnloop_api.kinds.model_deployment import ModelDeploymentSpec, ModelDeploymentStatus
from learnloop_api.wire.routing import Arm, RoutingTable
from learnloop_operator.kube.fenced_client import KubeClient
from learnloop_operator.rollout.children.routing import http_route
from learnloop_operator.rollout.state.snapshot import Defaults, Desired, Snapshot
from testing.operators.api_access import from_kubeconfig
from testing.operators.gateway_api import install

STABLE, CANARY, OTHER = "0" * 8, "1" * 8, "2" * 8


def table(**weights: int) -> RoutingTable:
    roles = {STABLE: "stable", CANARY: "canary", OTHER: "canary"}
    arms = [
        Arm.model_validate({"revision": revision, "role": roles[revision], "weight": weight, "url": "http://x:8080"})
        for revision, weight in zip(roles, weights.values(), strict=False)
    ]
    return RoutingTable(model_deployment="md", mode="gateway", generation=1, arms=arms)


TABLES: dict[str, Callable[[], RoutingTable]] = {
    "one arm": lambda: table(stable=100),
    "a canary": lambda: table(stable=90, canary=10),
    "an experiment": lambda: table(stable=40, canary=30, other=30),
}


@pytest.fixture(scope="module")
def routes(api_server: Path) -> None:
    """The API server knows HTTPRoutes."""

    async def installed() -> None:
        user = KubeClient(from_kubeconfig(api_server))
        await install(user)
        await user.close()

    asyncio.run(installed())


@pytest.mark.usefixtures("routes")
@pytest.mark.parametrize("made", TABLES.values(), ids=TABLES)
def test_the_live_route_is_the_manifest_and_applying_it_again_changes_nothing(made, kube, namespace):
    owner = kube.create(
        {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": "md", "namespace": namespace},
            "spec": {
                "model": {"uri": "uniform://discrete/2?observations=4"},
                "routing": {
                    "mode": "gateway",
                    "gateway": {"name": "edge", "namespace": "infra", "sectionName": "web"},
                    "hostnames": ["a.example"],
                },
            },
        }
    )
    snapshot = Snapshot(
        now=datetime(2026, 1, 1, tzinfo=UTC),
        object=owner,
        spec=ModelDeploymentSpec.model_validate(owner["spec"]),
        before=ModelDeploymentStatus(),
        desired=Desired(),
        defaults=Defaults("image", "http://data"),
    )
    manifest = http_route(snapshot, made())
    live = kube.apply(manifest)
    assert live["spec"] == manifest["spec"]
    assert kube.apply(manifest)["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
