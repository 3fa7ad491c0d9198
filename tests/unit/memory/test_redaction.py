"""Redaction at publisher and consumer: what is planted never comes out, ordinary text does, pseudonyms are stable."""

import pytest
from bench.pipeline.redaction import KEY, run
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api.redaction import Redaction
from learnloop_api.redaction_checks import cards, iban_length, luhn


def test_of_ten_thousand_planted_secrets_none_comes_out() -> None:
    result = run(10_000, seed=4711)
    assert result["leaked"] == {"publisher": 0, "consumer": 0, "both": 0}
    assert result["unstable"] == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pay with 4111 1111 1111 1111 12/27 code 123", "pay with <CARD> 12/27 code 123"),
        ("378282246310005", "<CARD>"),
        ("4111-1111-1111-1112", "4111-1111-1111-1112"),
        ("to DE89 3704 0044 0532 0130 00 and GB82WEST12345698765432.", "to <IBAN> and <IBAN>."),
        ("DE88370400440532013000", "DE88370400440532013000"),
        ("1700000000000000000 ns and 0.4111111111111111", "1700000000000000000 ns and 0.4111111111111111"),
        ("my password is hunter22", "my password is <SECRET>"),
        ("-----BEGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nabc", "<SECRET>"),
    ],
)
def test_check_digits_decide_and_neighbours_stay(text: str, expected: str) -> None:
    assert Redaction().text(text) == expected


def test_one_address_has_one_pseudonym_and_another_key_another() -> None:
    ours, theirs = Redaction(KEY), Redaction(bytes(32))
    first, second = ours.text("from Anna@Example.org"), ours.text("to anna@example.org, ben@example.org").split(", ")
    assert first.removeprefix("from ") == second[0].removeprefix("to ") != second[1]
    assert theirs.text("from anna@example.org") != first
    spaced, dense = ours.text("4111 1111 1111 1111"), ours.text("4111111111111111")
    assert spaced == dense
    with pytest.raises(ValueError, match="at least 16"):
        Redaction(b"short")


@given(st.text(max_size=300), st.booleans())
def test_redacting_twice_changes_nothing(text: str, keyed: bool) -> None:
    rules = Redaction(KEY if keyed else None)
    once = rules.text(text)
    assert rules.text(once) == once


@given(st.from_regex(r"[2-6][0-9]{12,17}", fullmatch=True), st.sampled_from(["", " ", "-"]))
def test_a_card_is_found_however_it_is_grouped(body: str, separator: str) -> None:
    number = next(body + digit for digit in "0123456789" if luhn(body + digit))
    shown = separator.join(number[i : i + 4] for i in range(0, len(number), 4))
    assert cards(shown)


def test_an_iban_ends_where_its_country_says() -> None:
    assert iban_length("NO93 8601 1117 947 and more") == 18
    assert iban_length("XX93 8601 1117 947") is None


def test_hostile_repetition_takes_linear_time() -> None:
    pieces = (
        "1 ",
        "DE",
        "DE12 ",
        "4-",
        "pass is ",
        "a@",
        "-----BEGIN PRIVATE KEY-----",
        "://a:",
        "sk-",
        "12345678901234 ",
    )
    for piece in pieces:
        Redaction().text(piece * 20_000)
