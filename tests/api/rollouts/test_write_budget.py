"""What a rollout in four steps costs the API server, and what a GitOps tool sees of it: nothing."""

from pathlib import Path
from typing import Any

import pytest

from testing.operators.crash_scenarios import SEQUENTIAL
from testing.operators.crash_world import World
from testing.operators.gitops_differences import differences
from testing.operators.writes_per_rollout import THRESHOLD, rollout_log

MOST_WRITES = 25


async def applied(world: World) -> None:
    """A GitOps tool that looks now shows Synced."""
    assert await differences(world, 1) == {}


@pytest.mark.parametrize("metric", [THRESHOLD, SEQUENTIAL], ids=["threshold", "sequential"])
async def test_four_steps_cost_at_most_25_writes_and_none_that_a_gitops_tool_would_see(
    api_server: Path, metric: dict[str, Any]
) -> None:
    log = await rollout_log(api_server, metric, applied)
    assert len(log) <= MOST_WRITES, log


async def test_in_gateway_mode_a_weight_costs_one_write_of_the_route_and_none_of_the_table(api_server: Path) -> None:
    log = await rollout_log(api_server, SEQUENTIAL, applied, mode="gateway")
    assert len(log) <= MOST_WRITES, log
    assert sum("httproutes" in write for write in log) == 5, "four weights, and the old arm goes"
    assert sum("configmaps" in write for write in log) == 2, "the canary may play, and is stable"
