"""Redaction at publisher and consumer: what is planted never comes out, ordinary text does, pseudonyms are stable."""

import random

import pytest
from bench.pipeline.ordinary import KINDS, UNDECIDABLE
from bench.pipeline.redaction import KEY, run, taken_for_secrets
from hypothesis import given
from hypothesis import strategies as st

from learnloop_api.redaction import Redaction, user_as_sent
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


def test_ids_hashes_numbers_and_talk_of_secrets_stay() -> None:
    taken = taken_for_secrets(random.Random(7), Redaction(), 4000)
    assert {kind: share for kind, share in taken.items() if share} == {UNDECIDABLE: taken[UNDECIDABLE]}
    assert set(taken) == set(KINDS)
    assert taken[UNDECIDABLE] < 0.06


@pytest.mark.parametrize(
    "text",
    [
        "602fc9de-8b96-427a-be48-b23f295874f0",
        "156 520 793 76 86 794 477 214",
        "max_tokens=4096, basic information",
        "c2210321-7862-49d5-a201-041069ab1c7f",
    ],
)
def test_what_only_looks_like_an_account_a_card_or_a_token_stays(text: str) -> None:
    assert Redaction().text(text) == text


def test_counts_of_tokens_are_kept_and_tokens_are_not() -> None:
    usage = {"prompt_tokens": 812, "total_tokens": 845.0, "token": 482913, "tokens": "abcd", "password": 12345678}
    assert Redaction().value(usage) == usage | dict.fromkeys(("token", "tokens", "password"), "<SECRET>")
    assert Redaction().text("token: 482913") == "token: <SECRET>"
    assert Redaction().text("Authorization: Basic onlyletters") == "Authorization: Basic <SECRET>"
    assert Redaction().text("bearer abcdefghijklmnopqrstuvwx") == "bearer <SECRET>"


def test_a_person_is_known_by_an_id_that_says_nothing_and_is_nobody_elses() -> None:
    anna, ben = user_as_sent("anna@example.org"), user_as_sent("ben@example.org")
    assert anna != ben
    assert "anna" not in anna
    assert user_as_sent(anna) == anna
    assert user_as_sent("customer-17") == "customer-17"


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
