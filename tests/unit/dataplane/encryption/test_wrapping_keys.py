"""The keys of the Secret: read line by line, never printed, and each wraps for its own place alone."""

import base64

import pytest

from learnloop_dataplane.config import WrappingKeys
from learnloop_dataplane.errors import KeyMissing

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))


def test_the_newest_wraps_and_all_unwrap() -> None:
    before, after = WrappingKeys.parse(f"k1 {OLD}"), WrappingKeys.parse(f"k2 {NEW}\n\nk1 {OLD}\n")
    wrapped = before.wrap(b"secret", "team-a/1")
    assert (after.newest, after.unwrap(wrapped, "k1", "team-a/1")) == ("k2", b"secret")
    with pytest.raises(KeyMissing, match="has no key k2"):
        before.unwrap(after.wrap(b"secret", "x"), "k2", "x")


def test_a_wrapped_key_unwraps_in_its_place_and_by_its_own_key_alone() -> None:
    keys, other = WrappingKeys.parse(f"k1 {OLD}"), WrappingKeys.parse(f"k1 {NEW}")
    wrapped = keys.wrap(b"secret", "team-a/1")
    for wrong, context in ((keys, "team-b/1"), (other, "team-a/1")):
        with pytest.raises(KeyMissing, match=r"the key k1 .* is not the one that wrapped"):
            wrong.unwrap(wrapped, "k1", context)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty; give a line NAME KEY"),
        (OLD, "line 1: give NAME KEY"),
        (f"k1 {OLD}\nk1 {NEW}", "line 2: the name k1 appears twice"),
        ("k1 c2hvcnQ=", "line 1: the key k1 is not 32 random bytes in Base64"),
        (f"K_1 {OLD}", "line 1: give NAME KEY"),
    ],
)
def test_a_wrong_line_is_named_and_its_key_is_not_printed(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        WrappingKeys.parse(text)
    assert OLD not in str(caught.value)
    assert "\\x01" not in repr(WrappingKeys.parse(f"k1 {OLD}"))
