"""What a rollout in four steps costs the API server, and what a GitOps tool sees of it: nothing."""

from pathlib import Path
from typing import Any

import pytest
from crash_sweep import MOST_TURNS, SEQUENTIAL, serves
from crash_world import NAME, World, full_spec, model
from served_traffic import Provider

from learnloop_api import names
from learnloop_operator.adapters import kubeconfig
from learnloop_operator.adapters.kinds import MODEL_DEPLOYMENT

MOST_WRITES = 25
THRESHOLD = {"name": "success", "type": "success", "minRatio": 0.9}


async def applied(world: World, number: int) -> None:
    """What Argo CD compares: the user's manifest, applied by the server without being kept, with the live object."""
    spec = {**world.asked, "model": model(number)}
    body = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": {"name": NAME}, "spec": spec}
    path = MODEL_DEPLOYMENT.path(world.namespace, NAME)
    query = {"dryRun": "All", "fieldManager": "gitops", "force": "true"}
    predicted = await world.user.http.request(
        "PATCH", path, body=body, query=query, content_type="application/apply-patch+yaml"
    )
    live = await world.user.get(MODEL_DEPLOYMENT, world.namespace, NAME)
    assert _compared(predicted) == _compared(live)


def _compared(item: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: item["metadata"].get(key) for key in ("labels", "annotations", "finalizers", "generation")}
    return {"spec": item["spec"], "metadata": metadata}


@pytest.mark.parametrize("metric", [THRESHOLD, SEQUENTIAL], ids=["threshold", "sequential"])
async def test_four_steps_cost_at_most_25_writes_and_none_that_a_gitops_tool_would_see(
    api_server: Path, metric: dict[str, Any]
) -> None:
    provider = Provider()
    await provider.start()
    analysis = {"intervalSeconds": 5, "metrics": [metric]}
    world = World(
        kubeconfig.from_kubeconfig(api_server), provider, full_spec(serving={"replicas": 1}, analysis=analysis)
    )
    await world.begin()
    while world.ledger.status.get("phase") != "Healthy" or await world.turn():
        await world.turn()
    before, weights = world.ledger.total, set[int]()
    await world.wish(1, 1.0)
    for _ in range(MOST_TURNS):
        await world.turn()
        weight = world.ledger.status.get("weight")
        if weight not in weights:
            weights.add(weight)
            await applied(world, 1)
        if serves(1)(world):
            break
    while await world.turn():
        pass
    assert weights >= {10, 25, 50, 100}
    assert not world.ledger.violations
    assert world.ledger.total - before <= MOST_WRITES, world.ledger.log[before:]
    await world.end()
    await provider.stop()
