"""A GitOps tool sees nothing of a rollout in four steps, and a weight costs one write of a route."""

from pathlib import Path

import pytest

from testing.operators.crash_rig import Rig
from testing.operators.crash_scenarios import SEQUENTIAL
from testing.operators.gitops_differences import differences
from testing.operators.write_ledger import OWN
from testing.operators.writes_per_rollout import THRESHOLD, rollout_log


async def applied(rig: Rig) -> None:
    """A GitOps tool that looks now shows Synced."""
    assert await differences(rig, 1) == {}


@pytest.mark.parametrize("metric", [THRESHOLD, SEQUENTIAL], ids=["threshold", "sequential"])
async def test_a_gitops_tool_sees_no_write_of_four_steps(api_server: Path, metric: dict) -> None:
    log = await rollout_log(api_server, metric, applied)
    assert not [write for write in log if any(kind in write for kind in OWN) and not write.endswith("/status")]


async def test_in_gateway_mode_a_weight_costs_one_write_of_the_route_and_none_of_the_table(api_server: Path) -> None:
    log = await rollout_log(api_server, SEQUENTIAL, applied, mode="gateway")
    assert sum("httproutes" in write for write in log) == 6, "four weights, the promotion, and the old arm is removed"
    assert sum("configmaps" in write for write in log) == 3, "the canary may play, is stable, the old arm goes"
