import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop_common.key_lines import KeyLines
from learnloop_common.redaction.redactor import Redaction
from learnloop_dataplane.privacy import people
from learnloop_sdk.errors import LearnloopError
from learnloop_sdk.trajectory import default_redactor, redact_text, redact_trajectory

MASK = "<SECRET>"


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
    assert redact_text.value(value) == {
        "user": "x",
        "db_password": MASK,
        "nested": [{"token": MASK, "max_tokens": 5}],
        "secret": None,
    }


def test_people_with_addresses_as_ids_stay_several() -> None:
    def sent(user: str) -> str:
        body = {"task": "", "policy_revision": "", "outcome": {}, "steps": []}
        body["metadata"] = {"user_id": user, "note": f"for {user}"}
        metadata: dict[str, str] = redact_trajectory(body, redact_text)["metadata"]
        assert user not in metadata.values()
        return metadata["user_id"]

    assert len({sent("anna@example.org"), sent("ben@example.org")}) == 2


@given(st.text(alphabet=st.characters(max_codepoint=255), max_size=120))
def test_redaction_is_stable(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


def test_an_agent_makes_pseudonyms_by_the_key_that_is_in_use_as_the_data_plane_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines, clock = KeyLines.parse(f"{'n' * 32} from=1000\n{'o' * 32}"), [999.0]
    monkeypatch.setattr("learnloop_common.key_lines.time.time", lambda: clock[0])
    monkeypatch.setenv("LEARNLOOP_PSEUDONYM_KEY", "\n".join((f"{'n' * 32} from=1000", "o" * 32)))
    redactor, context = default_redactor(), {"a@b.example": "a@b.example"}
    for clock[0], key in ((999.0, b"o" * 32), (1000.0, b"n" * 32)):
        by_key = Redaction(key)
        assert redactor("write to a@b.example") == by_key("write to a@b.example")
        assert redactor.value(context) == by_key.value(context)
        people.use_keys(lines)
        assert people.redact(context) == by_key.value(context)
    people.use_keys(None)


def test_a_short_key_of_several_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNLOOP_PSEUDONYM_KEY", f"{'n' * 32}\nshort")
    with pytest.raises(LearnloopError, match="LEARNLOOP_PSEUDONYM_KEY: the key of the pseudonyms has 5 bytes"):
        default_redactor()
