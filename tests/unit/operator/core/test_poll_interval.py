"""When pods that are not ready are looked at again."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from learnloop_operator.core.times import LATEST, SHARE, SOONEST, next_look, stamp, unready_since

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MADE = "2025-12-31T23:00:00Z"
DAY = 86_400


def ago(seconds: int) -> str:
    return stamp(NOW - timedelta(seconds=seconds))


def deployment(*conditions: dict) -> dict:
    return {"metadata": {"creationTimestamp": MADE}, "status": {"conditions": list(conditions)}}


@given(st.integers(0, 30 * DAY), st.integers(0, DAY))
def test_the_longer_pods_were_not_ready_the_more_seldom_they_are_looked_at(waited: int, more: int) -> None:
    sooner, later = next_look(ago(waited), NOW), next_look(ago(waited + more), NOW)
    assert SOONEST <= sooner <= later <= LATEST


@given(st.integers(0, DAY))
def test_whoever_looks_learns_of_the_end_a_tenth_too_late_at_most(waited: int) -> None:
    assert next_look(ago(waited), NOW) <= max(SOONEST, SHARE * waited)


@pytest.mark.parametrize("since", [None, "", "yesterday", "2026-01-01T00:05:00Z"])
def test_without_a_time_that_can_be_read_and_is_past_pods_are_looked_at_soon(since: str | None) -> None:
    assert next_look(since, NOW) == SOONEST


def test_since_when_pods_are_missing_is_told_by_available_or_by_the_age_while_nobody_has_told() -> None:
    failed = {"type": "ReplicaFailure", "status": "True", "lastTransitionTime": ago(7)}
    lost = {"type": "Available", "status": "False", "lastTransitionTime": ago(40)}
    assert unready_since(deployment(failed, lost)) == ago(40)
    assert unready_since(deployment(failed)) == MADE
    assert unready_since({"metadata": {"creationTimestamp": MADE}}) == MADE
    assert unready_since(deployment({**lost, "status": "True"})) is None
    assert unready_since(None) is None
