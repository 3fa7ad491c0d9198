"""What was made by a key before it was rotated is still known."""

import time
from collections.abc import Iterator

import pytest

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane import privacy
from learnloop_dataplane.config import with_password

OLD, NEW = "o" * 32, "n" * 32


@pytest.fixture(autouse=True)
def plain_afterwards() -> Iterator[None]:
    yield
    privacy.use_keys(None)


def test_pods_that_read_the_new_key_at_different_times_say_the_same_until_it_is_used() -> None:
    lines = KeyLines.parse(f"{NEW} from={int(time.time()) + 3600}\n{OLD}")
    privacy.use_keys(KeyLines.parse(OLD))
    before = privacy.redact_text("write to a@b.example")
    privacy.use_keys(lines)
    assert privacy.redact_text("write to a@b.example") == before


def test_an_address_has_the_newest_of_several_passwords() -> None:
    dsn = "postgresql://data@one:5432,two:5432/db?target_session_attrs=read-write"
    assert with_password(dsn, KeyLines.parse("p/1")) == dsn.replace("data@", "data:p%2F1@")
    both = with_password(dsn, KeyLines.parse("new\nold"))
    assert both == dsn.replace("data@", "data:new@")
