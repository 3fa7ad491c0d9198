"""Redaction at publisher and consumer: what is planted never comes out, ordinary text does, pseudonyms are stable."""

import random
import time

import pytest
from hypothesis import given, strategies as st

from bench.pipeline.ordinary import KINDS, UNDECIDABLE
from bench.pipeline.redaction import KEY, run, taken_for_secrets
from learnloop_common.redaction.redactor import Redaction, user_as_sent
from learnloop_common.redaction.rules import SEPARATORS, cards, iban_length, luhn


def test_of_ten_thousand_planted_secrets_none_comes_out() -> None:
    result = run(10_000, seed=4711)
    assert result["leaked"] == {"publisher": 0, "consumer": 0, "both": 0, "memory": 0}
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
        ('password = "correct horse battery", next', 'password = "<SECRET>", next'),
        ("kept {'password': 'a b c d e'} so", "kept {'password': '<SECRET>'} so"),
        (r"{\"password\": \"a b c\", \"x\": 1}", r"{\"password\": \"<SECRET>\", \"x\": 1}"),
        ("secret: 'it has no end\nand more", "secret: '<SECRET>\nand more"),
        ("**Password:** `correct horse`", "**Password:** `<SECRET>`"),
        ('{"accessToken":"abcd1234"}', '{"accessToken":"<SECRET>"}'),
        ("token is abcd1234efgh.", "token is <SECRET>."),
        ("the api key was: 9f8e7d6c5b, then", "the api key was: <SECRET>, then"),
        ("my Api-Key is: v01~0%qCBi_SUuq9", "my Api-Key is: <SECRET>"),
        ("the token is 32-byte!x9Kd", "the token is <SECRET>"),
        ("the secret is base64-encoded, the token is v2.1.", "the secret is base64-encoded, the token is v2.1."),
        ('the secret is "open sesame"', 'the secret is "<SECRET>"'),
        ("redis://:pa55word@host/0", "redis://:<SECRET>@host/0"),
        ("amqp://u:p@ss@host", "amqp://u:<SECRET>@host"),
        ("4111\u00a01111\u00a01111\u00a01111", "<CARD>"),
        ("4111.1111.1111.1111.", "<CARD>."),
        ("4111.1111 1111.1111 and 0.4111111111111111", "4111.1111 1111.1111 and 0.4111111111111111"),
        ("DE89\u20093704\u20090044\u20090532\u20090130\u200900 paid", "<IBAN> paid"),
        ("to DE89.3704.0044.0532.0130.00.", "to <IBAN>."),
        ("anna@müller.de, Jörg@例え.jp, anna%40example.org", "<EMAIL>, <EMAIL>, <EMAIL>"),
        (
            "anna (at) example.org, anna[AT]example[dot]org, anna {at} example dot org",
            "<EMAIL>, <EMAIL>, anna {at} example dot org",
        ),
        ("look (at) that, good (at) it.", "look (at) that, good (at) it."),
        ("4111/1111/1111/1111 of 2026/11/28/00/15/30", "<CARD> of 2026/11/28/00/15/30"),
        ("to DE89/3704/0044/0532/0130/00", "to <IBAN>"),
        ("call +49/30/1234567 or 415/555/0123, 123/45/6789", "call <PHONE> or <PHONE>, <SSN>"),
        ("on 11/28/2026 and 1/2/3", "on 11/28/2026 and 1/2/3"),
        ("from mu\u0308ller@mu\u0308ller.de", "from <EMAIL>"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic <SECRET>"),
        ("-----BEGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nabc", "<SECRET>"),
    ],
)
def test_check_digits_decide_and_neighbours_stay(text: str, expected: str) -> None:
    assert Redaction().text(text) == expected


def test_ids_hashes_numbers_and_talk_of_secrets_stay() -> None:
    taken = taken_for_secrets(random.Random(7), Redaction(), 2000)
    assert {kind: share for kind, share in taken.items() if share} == {UNDECIDABLE: taken[UNDECIDABLE]}
    assert set(taken) == set(KINDS)


def test_of_long_numbers_those_are_taken_that_begin_as_a_card_and_pass_its_check() -> None:
    rng = random.Random(7)
    numbers = [KINDS[UNDECIDABLE](rng) for _ in range(2000)]
    taken = [number for number in numbers if Redaction().text(number) != number]
    assert taken == [number for number in numbers if number[0] in "23456" and luhn(number)]


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


def test_names_of_secrets_are_known_however_they_are_joined() -> None:
    names = ("api key", "dbPassword", "AWS_SECRET_ACCESS_KEY", "accessToken", "signing-key", "Passcode", "pass")
    assert Redaction().value(dict.fromkeys(names, "abc")) == dict.fromkeys(names, "<SECRET>")
    assert Redaction().value({"compass": "north", "maxTokens": 12}) == {"compass": "north", "maxTokens": 12}


def test_counts_of_tokens_are_kept_and_tokens_are_not() -> None:
    usage = {"prompt_tokens": 812, "total_tokens": 845.0, "token": 482913, "tokens": "abcd", "password": 12345678}
    assert Redaction().value(usage) == usage | dict.fromkeys(("token", "tokens", "password"), "<SECRET>")
    assert Redaction().text("token: 482913") == "token: <SECRET>"
    assert Redaction().text("Authorization: Basic onlyletters") == "Authorization: Basic <SECRET>"
    assert Redaction().text("bearer abcdefghijklmnopqrstuvwx") == "bearer <SECRET>"


@pytest.mark.parametrize(
    "items",
    [
        ["anna", "@example.org"],
        ["anna@", "example", ".org"],
        ["card", "4111", "1111", "1111", "1111"],
        ["+1 415", "555 0123"],
        ["password:", "correct-horse"],
    ],
)
def test_what_a_list_says_in_pieces_is_taken_out(items: list[str]) -> None:
    (mark,) = set(Redaction().value(items))
    assert mark.strip("<>") in ("EMAIL", "CARD", "PHONE", "SECRET")
    assert Redaction().value({"x": items}) == {"x": [mark] * len(items)}


def test_an_address_has_one_pseudonym_however_it_is_spelled() -> None:
    ours = Redaction(KEY)
    assert ours.text("Anna (at) example (dot) org") == ours.text("anna@example.org") == ours.text("anna%40example.org")


def test_a_person_is_known_by_an_id_that_says_nothing_and_is_nobody_elses() -> None:
    anna, ben = user_as_sent("anna@example.org"), user_as_sent("ben@example.org")
    assert anna != ben
    assert "anna" not in anna
    assert user_as_sent(anna) == anna
    assert user_as_sent("customer-17") == "customer-17"


def test_one_address_has_one_pseudonym_and_another_key_another() -> None:
    ours, other = Redaction(KEY), Redaction(bytes(32))
    first, second = ours.text("from Anna@Example.org"), ours.text("to anna@example.org, ben@example.org").split(", ")
    assert first.removeprefix("from ") == second[0].removeprefix("to ") != second[1]
    assert other.text("from anna@example.org") != first
    spaced, dense = ours.text("4111 1111 1111 1111"), ours.text("4111111111111111")
    assert spaced == dense
    with pytest.raises(ValueError, match="at least 16"):
        Redaction(b"short")


@given(st.text(max_size=300), st.booleans())
def test_redacting_twice_changes_nothing(text: str, keyed: bool) -> None:
    rules = Redaction(KEY if keyed else None)
    once = rules.text(text)
    assert rules.text(once) == once


PIECES = (
    *(
        "password",
        "token",
        "secret",
        "api key",
        "s",
        " is ",
        ":",
        " = ",
        '"',
        "'",
        "`",
        "\\",
        "**",
        "\n",
        " ",
        "a b",
        "x",
    ),
    *("abcd1234", "<SECRET:abcdef01>", "<EMAIL>", "<", "://", "@", "example.org", "Authorization", "Bearer ", "sk-"),
    *("A" * 20, "a1" * 12, "4111", ".", "DE89"),
)


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), st.booleans())
def test_redacting_what_looks_like_secrets_twice_changes_nothing(text: str, keyed: bool) -> None:
    rules = Redaction(KEY if keyed else None)
    once = rules.text(text)
    assert rules.text(once) == once


@pytest.mark.parametrize("before", ["", "\n", "\x1f", '"', "\\", "{", "é"])
@pytest.mark.parametrize(
    "result", ["GB82WEST12345698765432", "4111111111111111", "a@b.de", "token: abcd1234", "\0", "https://:pass@host"]
)
def test_json_hides_nothing_that_is_redacted(result: str, before: str) -> None:
    assert Redaction().value([before + result]) != [before + result]


@given(st.from_regex(r"[2-6][0-9]{12,17}", fullmatch=True), st.sampled_from(["", *SEPARATORS]))
def test_a_card_is_found_however_it_is_grouped(body: str, separator: str) -> None:
    number = next(body + digit for digit in "0123456789" if luhn(body + digit))
    shown = separator.join(number[i : i + 4] for i in range(0, len(number), 4))
    assert cards(shown)


def test_an_iban_ends_where_its_country_says() -> None:
    assert iban_length("NO93 8601 1117 947 and more") == 18
    assert iban_length("XX93 8601 1117 947") is None


HOSTILE = (
    *("1 ", "1\u00a0", "4-", "4111.", "DE", "DE12 ", "DE89 3704", "12345678901234 "),
    *("password is ", "token is ", "api_key", "secret is <", 'password="', "token='secret=\"", 'token="\\', 'pwd=\\"'),
    *("a@", "a%40", "ä@ü.", "://:", "://::@", "-----BEGIN PRIVATE KEY-----", "bearer ", "authorization: "),
    *("sk-", "SG.a-", "pypi-", "glpat-", "eyJ-", "eyJaaaaa.", "dop_v1_"),
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_four_times_as_much_hostile_text_is_about_four_times_the_work(piece: str) -> None:
    rules = Redaction()

    def work(size: int) -> float:
        text = (piece * size)[:size]
        started = time.thread_time_ns()
        rules.text(text)
        return time.thread_time_ns() - started + 1

    # Quadratic work would be sixteen times as much whenever it is looked at; a busy machine is not busy each time.
    assert any(work(100_000) < 9 * work(25_000) for _ in range(20))
