"""A sample of the crash sweep, in both routing modes; `make crash-sweep` takes every point of every scenario."""

from pathlib import Path

from testing.operators.crash_sweep import sweep

SAMPLE = ("undone", "in shadow first", "by a gateway, promoted")


async def test_an_operator_killed_at_any_write_ends_where_an_undisturbed_one_does(api_server: Path) -> None:
    result = await sweep(api_server, every=19, names=SAMPLE)
    assert result.good, (result.missed, result.different, result.violations, result.contested)
    assert result.points == result.converged >= 10
