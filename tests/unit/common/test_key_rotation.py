"""A secret's value and those before it: which one signs, and which verify."""

import pytest

from learnloop_common.key_rotation import MOST_LINES, KeyLines


def test_a_new_value_verifies_at_once_and_signs_from_its_second_on() -> None:
    lines = KeyLines.parse("new from=100\nold")
    assert lines.values == ("new", "old")
    assert lines.current(99) == "old"
    assert lines.current(100) == "new"


def test_a_second_rotation_before_the_first_one_is_in_use_changes_nothing_too_early() -> None:
    lines = KeyLines.parse("c from=200\nb from=100\na")
    assert [lines.current(now) for now in (50, 150, 250)] == ["a", "b", "c"]


def test_a_value_may_be_known_to_all_before_it_is_used() -> None:
    announced = KeyLines.parse("b from=7\na\nc")
    assert announced.lines == (("b", 7.0), ("a", 0.0), ("c", 0.0))
    assert announced.current(99) == "b"


@pytest.mark.parametrize("value", ["a\x85b", "a\x0bb", "a\x1cb", "\xa0ab\xa0", "a\u2028b"])
def test_what_only_unicode_takes_for_a_blank_or_an_end_belongs_to_the_value(value: str) -> None:
    assert KeyLines.parse(f" {value}\t\r\n\n{value}2\n").values == (value, f"{value}2")


@pytest.mark.parametrize("text", ["", "\n \n", "secret from=soon", "\n".join(map(str, range(MOST_LINES + 1)))])
def test_what_is_no_such_text_is_refused_without_telling_it(text: str) -> None:
    with pytest.raises(ValueError, match="line") as caught:
        KeyLines.parse(text)
    assert "secret" not in str(caught.value)


def test_it_does_not_print_its_values() -> None:
    assert "secret" not in repr(KeyLines.parse("secret"))
