"""Operator processes that die by SIGKILL at writes of a rollout; `make crash-sweep KILLS=12` takes more of them."""

from pathlib import Path

import pytest

from testing.operators.process_kills import compare

KILLS = 3


@pytest.mark.parametrize("mode", ["service", "gateway"])
async def test_a_rollout_survives_processes_that_are_killed_at_its_writes(
    api_server: Path, tmp_path: Path, mode: str
) -> None:
    found, different = await compare(api_server, tmp_path, KILLS, every=4, mode=mode)
    assert not different
    assert len(found.killed_at) == KILLS, found.killed_at
    assert found.codes == [-9] * KILLS
    assert found.generations == sorted(set(found.generations)), "a routing table came back"
