"""A secret's value and those before it: which one signs, and which verify."""

import pytest

from learnloop_api.key_lines import MOST_LINES, KeyLines


def test_one_value_is_one_line_and_is_used_at_once() -> None:
    lines = KeyLines.parse("secret\n")
    assert lines.values == ("secret",)
    assert lines.current(0) == "secret"


def test_a_new_value_verifies_at_once_and_signs_from_its_second_on() -> None:
    lines = KeyLines.parse(KeyLines.parse("old").followed_by("new", 100.9))
    assert lines.values == ("new", "old")
    assert lines.current(99) == "old"
    assert lines.current(100) == "new"
    assert lines.alone() == "new"


def test_a_second_rotation_before_the_first_one_is_in_use_changes_nothing_too_early() -> None:
    first = KeyLines.parse("a").followed_by("b", 100)
    lines = KeyLines.parse(KeyLines.parse(first).followed_by("c", 200))
    assert [lines.current(now) for now in (50, 150, 250)] == ["a", "b", "c"]


def test_the_oldest_go_when_there_are_many() -> None:
    lines = KeyLines.parse("0")
    for number in range(1, MOST_LINES + 5):
        lines = KeyLines.parse(lines.followed_by(str(number), 0))
    assert len(lines.values) == MOST_LINES
    assert lines.values[0] == str(MOST_LINES + 4)


@pytest.mark.parametrize("text", ["", "\n \n", "secret from=soon", "\n".join(map(str, range(MOST_LINES + 1)))])
def test_what_is_no_such_text_is_refused_without_telling_it(text: str) -> None:
    with pytest.raises(ValueError, match="line") as caught:
        KeyLines.parse(text)
    assert "secret" not in str(caught.value)


def test_it_does_not_print_its_values() -> None:
    assert "secret" not in repr(KeyLines.parse("secret"))
