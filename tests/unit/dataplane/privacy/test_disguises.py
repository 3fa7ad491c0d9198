"""Secrets and personal data in disguise, and what has no check digit; what only looks like it stays as it was."""

import base64

import pytest

from learnloop_common.redaction.redactor import Redaction

RULES = Redaction(bytes(range(32)))
CARD = "4111 1111 1111 1111"
WIDE = "４１１１ １１１１ １１１１ １１１１"


@pytest.mark.parametrize(
    "shown",
    [
        WIDE,
        "4111\u200b1111\u200c1111\u20601111",
        "4111_1111_1111_1111",
        "٤١١١ ١١١١ ١١١١ ١١١١",
        "\u202e4111\u00ad111111111111",
    ],
)
def test_a_card_is_the_same_card_however_it_is_written(shown: str) -> None:
    assert RULES.text(f"pay {shown} now") == RULES.text(f"pay {CARD} now")


@pytest.mark.parametrize(
    ("shown", "remainder"),
    [
        ("ｐａｓｓｗｏｒｄ: hunter2222", "password: <SECRET"),
        ("call +49 30 1234567 now", "call <PHONE"),
        ("(212) 555-0123", "<PHONE"),
        ("her number 555-12-3456.", "her number <SSN"),
        ("from 203.0.113.7 again", "from <IP"),
        ("at 2001:db8:85a3:8d3:1319:8a2e:370:7348", "at <IP"),
        (base64.b64encode(b"password=hunter2222 and more").decode(), "<SECRET"),
        (base64.urlsafe_b64encode(b"mail anna@example.org, she knows").decode().rstrip("="), "<SECRET"),
    ],
)
def test_each_disguise_is_seen_through(shown: str, remainder: str) -> None:
    shown_text = RULES.text(shown)
    assert shown_text.startswith(remainder)
    assert RULES.text(shown_text) == shown_text


@pytest.mark.parametrize(
    "text",
    [
        "Пароль для Анны: все хорошо",
        "Ωmega and αlpha decay",
        "👩\u200d👩\u200d👧 went home",
        "version v10.20.30.40",
        "release 1.5.2.1",
        "127.0.0.1 and 0.0.0.0",
        "12:30:45, then 23:59:59",
        "std::vector<a::b>",
        "2026-11-23 12:00:01 +0000",
        "3.141592653589793",
        "1-800 apples",
        "0123-45-67890",
        base64.b64encode(b"the agent went home and slept").decode(),
        base64.b64encode(bytes(range(200, 250))).decode(),
    ],
)
def test_what_only_looks_like_it_stays_as_it_was(text: str) -> None:
    assert RULES.text(text) == text


def test_a_secret_in_pieces_becomes_the_same_mark_in_each() -> None:
    assert len(set(RULES.value(CARD.split(" ")))) == 1
    assert RULES.value(CARD.split(" "))[0].startswith("<CARD:")
    values = [["go", "left"], ["2026", "11", "23"], ["4111", 1, "1111"], ["", ""]]
    assert RULES.value(values) == values
    twice = RULES.value(RULES.value(CARD.split(" ")))
    assert twice == RULES.value(CARD.split(" "))


def test_hostile_text_takes_time_in_proportion_to_its_length() -> None:
    for sign in ("A", "a-", "1.", "+1 ", "1:", "\u200b", "а1", "5-", "(2"):
        RULES.text(sign * (200_000 // len(sign)))
