"""A sample of the crash sweep; `make crash-sweep` takes every point."""

from pathlib import Path

from crash_sweep import sweep


async def test_an_operator_killed_at_any_write_ends_where_an_undisturbed_one_does(api_server: Path) -> None:
    found = await sweep(api_server, every=9, names=("promoted", "rolled back"))
    assert not found.different
    assert not found.violations
    assert found.points == found.converged >= 10
