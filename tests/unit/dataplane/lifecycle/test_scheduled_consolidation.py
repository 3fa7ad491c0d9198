"""Work that keeps out of the way."""

import pytest

from learnloop_dataplane.lifecycle.rests import Rests


def test_a_thread_that_rests_sleeps_four_fifths_of_the_time() -> None:
    now, slept = 0.0, 0.0

    def sleep(seconds: float) -> None:
        nonlocal now, slept
        now, slept = now + seconds, slept + seconds

    rests = Rests(clock=lambda: now, sleep=sleep)
    for _ in range(100_000):
        now += 0.0001
        rests()
    assert slept / now == pytest.approx(0.8, abs=0.01)
