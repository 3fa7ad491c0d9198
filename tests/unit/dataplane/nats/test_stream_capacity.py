"""The messages of a stream that may go."""

from hypothesis import given
from hypothesis import strategies as st

from learnloop_dataplane.nats.streams import Level

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
def test_read_messages_go_when_the_stream_is_nearly_full_and_unread_ones_never(level: Level) -> None:
    full = level.bytes > 750_000 and level.read >= level.first
    assert level.purgeable == (level.read + 1 if full else 0)


def test_the_unread_share_is_that_of_the_room_not_of_the_messages() -> None:
    assert Level(limit=1000, bytes=500, messages=10, unread=4, first=1, read=6).unread_share == 0.2
    assert Level(limit=1000, bytes=0, messages=0, unread=0, first=1, read=0).unread_share == 0.0
