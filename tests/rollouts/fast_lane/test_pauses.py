"""A pause that many requests meet together is one event, and the fast lane counts it as one."""

from bench.statistics.pauses import rolled_back


def test_a_pause_of_half_a_second_every_two_minutes_rolls_no_canary_back() -> None:
    assert rolled_back(range(3)) == []


def test_a_canary_that_is_slow_half_of_the_time_is_rolled_back() -> None:
    [why] = rolled_back(range(1), pause=1.0, every=2)
    assert "took longer than 0.1 s" in why
