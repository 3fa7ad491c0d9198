"""Passwords that are rotated."""

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.config import with_password


def test_an_address_has_the_newest_of_several_passwords() -> None:
    dsn = "postgresql://data@one:5432,two:5432/db?target_session_attrs=read-write"
    assert with_password(dsn, KeyLines.parse("p/1")) == dsn.replace("data@", "data:p%2F1@")
    both = with_password(dsn, KeyLines.parse("new\nold"))
    assert both == dsn.replace("data@", "data:new@")
