"""What `make bench-scale` calls missed, and whom it waits for."""

import time

import pytest

from bench.operator import failover
from bench.scale.goals import NEEDED, judged


def test_a_percentile_of_few_rollbacks_is_no_verdict() -> None:
    few = judged({"rollback_p99_ratio": 2.9, "rollbacks": 6})
    assert few["goals_missed"] == []
    assert "rollback_p99_ratio" in few["goals_not_measured"]
    many = judged({"rollback_p99_ratio": 2.9, "rollbacks": NEEDED})
    assert many["goals_missed"] == ["rollback_p99_ratio"]


async def test_seconds_without_a_core_do_not_try_the_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "PATIENCE", 0.1)
    began = time.monotonic()

    async def late() -> bool:
        return time.monotonic() - began > 0.5

    assert await failover.until(late, "late", lambda: time.monotonic() - began) >= 0.5
    with pytest.raises(TimeoutError, match="never, in 0 s, 0 s of them without a core"):
        await failover.until(never, "never")


async def never() -> bool:
    return False
