"""What a rollout in four steps costs the API server, and what a GitOps tool sees of it: nothing."""

from pathlib import Path
from typing import Any

import pytest
from crash_scenarios import SEQUENTIAL
from crash_world import NAME, World, model
from rollout_cost import ERRORS, QUICK, SLOW, STEPS_WITH_EXPERIMENT, THRESHOLD, rollout_log

from learnloop_api import names
from learnloop_operator.adapters.kinds import MODEL_DEPLOYMENT

MOST_WRITES = 25
MOST_FOR_EXPERIMENT = 20
"""More, when one of the steps is an experiment of three arms: the guest's arm made and removed, who left the race and
who won it, and what a longer step costs (docs/decisions/0013)."""


async def applied(world: World) -> None:
    """What Argo CD compares: the user's manifest, applied by the server without being kept, with the live object."""
    spec = {**world.asked, "model": model(1)}
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
    log = await rollout_log(api_server, metric, applied)
    assert len(log) <= MOST_WRITES, log


@pytest.mark.parametrize("qualities", [QUICK, SLOW], ids=["decided soon", "decided late"])
async def test_an_experiment_among_the_steps_costs_what_it_decides_and_not_what_it_counts(
    api_server: Path, qualities: tuple[float, float, float]
) -> None:
    log = await rollout_log(api_server, ERRORS, applied, STEPS_WITH_EXPERIMENT, qualities)
    assert len(log) <= MOST_WRITES + MOST_FOR_EXPERIMENT, log
