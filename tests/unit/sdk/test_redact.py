import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_sdk.redact import MASK, redact_text, redact_value


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghijklmnopqrstuvwx",
        "ghp_" + "a1B2" * 9,
        "AKIA" + "ABCDEFGH12345678",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "Authorization: Bearer abcdefgh.ijklmnop",
        "someone+tag@mail.example.org",
        "xoxb-1234567890-abcdef",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        "postgres://user:s3cret@host/db",
        "token: 'abcd1234'",
        "API_KEY=abcd1234",
    ],
)
def test_an_obvious_secret_is_masked(secret: str) -> None:
    text = redact_text(f"before {secret} after")
    assert MASK in text or "<EMAIL>" in text
    assert text.startswith("before ")
    assert text.endswith(" after")
    for part in ("abcdefgh", "a1B2", "MIIE", "s3cret", "abcd1234", "someone", "c2lnbmF0dXJl"):
        assert part not in text


@pytest.mark.parametrize(
    "text", ["the pole fell after 21 steps", "http://example.com/a:b", "tokens per second: 5", "", "3f9a2c81"]
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact_text(text) == text


def test_what_stands_under_a_secret_name_is_masked_whole() -> None:
    value = {"user": "x", "db_password": {"a": 1}, "nested": [{"token": 5, "max_tokens": 5}], "secret": None}
    assert redact_value(value, redact_text) == {
        "user": "x",
        "db_password": MASK,
        "nested": [{"token": MASK, "max_tokens": MASK}],
        "secret": None,
    }


@given(st.text(alphabet=st.characters(max_codepoint=255), max_size=120))
def test_redaction_is_stable(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once
