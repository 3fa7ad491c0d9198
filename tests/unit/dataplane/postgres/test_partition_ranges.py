"""Partitions follow each other without a gap, there is always one for now, and none goes before its time."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_dataplane.postgres import partitions
from learnloop_dataplane.postgres.partitions import (
    AHEAD,
    MOST,
    Range,
    by_rows_before,
    due,
    missing,
    parse,
    width,
)

NOW = datetime(2026, 11, 24, 3, 30, tzinfo=UTC)
moments = st.datetimes(datetime(2026, 1, 1), datetime(2036, 1, 1)).map(lambda naive: naive.replace(tzinfo=UTC))
retentions = st.integers(1, 3650)


@given(moments, moments, retentions)
def test_they_follow_each_other_and_reach_two_weeks_ahead(last: datetime, now: datetime, days: int) -> None:
    last = last.replace(hour=0, minute=0, second=0, microsecond=0)
    made = missing("t", last, now, days)
    ends = [last, *(one.upper for one in made)]
    assert [one.lower for one in made] == ends[:-1]
    assert all(before < after for before, after in pairwise(ends))
    assert ends[-1] >= now + AHEAD
    assert len({one.name for one in made}) == len(made)
    assert not missing("t", ends[-1], now, days), "the next look has nothing to do"


@given(retentions)
def test_no_more_than_the_locks_of_a_server_allow_are_in_use(days: int) -> None:
    last, count = NOW - timedelta(days=days), 0
    count = len(missing("t", last, NOW, days))
    in_time = timedelta(days=days) / width(days)
    assert in_time <= MOST
    # What is ahead of now, and the wide one of a database that slept, which `missing` takes this for.
    assert count <= 1 + max(AHEAD, 2 * width(days)) / width(days) + 1


@given(moments, retentions, st.integers(0, 4000))
def test_none_goes_before_all_of_it_is_old(now: datetime, days: int, age: int) -> None:
    upper = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=age)
    part = Range(upper, upper - timedelta(days=1), "t")
    gone = due([part], now, days)
    assert bool(gone) == (now - upper >= timedelta(days=days))


def test_rows_of_the_one_without_a_beginning_go_one_by_one_until_all_of_it_is_due() -> None:
    first = Range(NOW + timedelta(days=7), None, "first")
    assert by_rows_before([first], NOW, 30) == NOW - timedelta(days=30)
    assert by_rows_before([first], NOW + timedelta(days=37), 30) is None
    assert by_rows_before([Range(NOW, NOW - timedelta(days=1), "t")], NOW, 30) is None
    assert by_rows_before([], NOW, 30) is None


def test_what_postgresql_says_of_a_bound_is_read() -> None:
    text = "FOR VALUES FROM ('2026-11-24 00:00:00+00') TO ('2026-11-25 00:00:00+00')"
    day = datetime(2026, 11, 24, tzinfo=UTC)
    assert parse("t", text) == Range(day + timedelta(days=1), day, "t")
    assert parse("t", "FOR VALUES FROM (MINVALUE) TO ('2026-11-25 00:00:00+00')").lower is None
    with pytest.raises(ValueError, match=r"partition t has the bound 'DEFAULT'.*detach"):
        parse("t", "DEFAULT")


async def test_one_that_is_dropped_at_this_moment_is_passed_over() -> None:
    class Connection:
        def is_in_transaction(self) -> bool:
            return True

        async def execute(self, _statement: str) -> None:
            return None

        async def fetch(self, *_: object) -> list[dict[str, str | None]]:
            bound = "FOR VALUES FROM (MINVALUE) TO ('2026-11-25 00:00:00+00')"
            return [{"relname": "gone", "bound": None}, {"relname": "first", "bound": bound}]

    assert [one.name for one in await partitions.ranges(Connection(), partitions.STEPS)] == ["first"]
