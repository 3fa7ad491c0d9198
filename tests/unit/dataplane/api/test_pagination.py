"""Marks of pages: what was given comes back, and the documented form lets nothing else through."""

import re
from datetime import UTC, datetime

from hypothesis import given, strategies as st

from learnloop_dataplane.api.route_input import begins_after, following, page_mark

TIMES = st.datetimes(datetime(1970, 1, 1), datetime(2286, 1, 1), timezones=st.just(UTC))
KEYS = st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40), min_size=3, max_size=3)
FORM = next(part.pattern for part in page_mark(3).metadata if hasattr(part, "pattern"))


@given(TIMES, KEYS)
def test_a_mark_comes_back_as_it_was_given_and_has_the_documented_form(time: datetime, keys: list[str]) -> None:
    mark = following(time, *keys)
    assert re.fullmatch(FORM, mark)
    assert begins_after(mark) == (time, *keys)


@given(st.from_regex(FORM, fullmatch=True))
def test_whatever_has_the_documented_form_is_a_mark(mark: str) -> None:
    start = begins_after(mark.removesuffix("\n"))
    assert len(start) == 4
    assert not any("\x00" in str(part) for part in start)
