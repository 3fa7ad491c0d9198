"""How much of a stream may go."""

from hypothesis import given
from hypothesis import strategies as st

from learnloop_dataplane.nats.streams import LEFT_SHARE, Level

LEVELS = st.builds(
    Level,
    limit=st.just(1_000_000),
    bytes=st.integers(1, 1_000_000),
    messages=st.integers(1, 10_000),
    unread=st.integers(0, 20_000),
    first=st.integers(1, 10_000),
    read=st.integers(0, 40_000),
)


@given(LEVELS)
def test_what_nobody_has_read_never_goes(level: Level) -> None:
    assert level.dispensable() <= max(level.read + 1, 0)


@given(LEVELS)
def test_nothing_goes_while_there_is_room(level: Level) -> None:
    if level.full <= 0.75:
        assert level.dispensable() == 0


def test_of_what_was_read_only_so_much_goes_that_half_the_room_is_free() -> None:
    level = Level(limit=1000, bytes=800, messages=80, unread=0, first=101, read=180)
    assert level.dispensable() == 131
    assert level.bytes - 30 * 10 == LEFT_SHARE * level.limit


def test_the_unread_share_is_that_of_the_room_not_of_the_messages() -> None:
    assert Level(limit=1000, bytes=500, messages=10, unread=4, first=1, read=6).unread_share == 0.2
    assert Level(limit=1000, bytes=0, messages=0, unread=0, first=1, read=0).unread_share == 0.0
