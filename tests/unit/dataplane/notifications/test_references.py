"""A reference in a message: signed, for a time, about one question, and no right."""

import base64
from datetime import UTC, datetime, timedelta

import pytest

from learnloop_api.wire.deployment import AwaitedApproval
from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.audit.signing import Signer
from learnloop_dataplane.errors import Invalid
from learnloop_dataplane.notifications import messages
from learnloop_dataplane.notifications.approvals import References

SINCE = datetime(2026, 1, 31, 12, tzinfo=UTC)
ASKED = AwaitedApproval(model_deployment="walker", revision="3f9a2c81", step=2, since=SINCE)


def of(*seeds: bytes) -> References:
    """By these keys, the newest first."""
    lines = "\n".join(base64.b64encode(seed).decode() for seed in seeds)
    return References(Signer(KeyLines.parse(lines)))


def test_a_reference_from_before_the_key_was_rotated_still_holds() -> None:
    made = of(b"k" * 32).made("ns", ASKED)
    assert of(b"n" * 32, b"k" * 32).read("ns", made, SINCE)["step"] == 2
    with pytest.raises(Invalid):
        of(b"n" * 32).read("ns", made, SINCE)


def test_the_same_question_has_the_same_reference_and_says_what_it_is_about() -> None:
    references = of(b"k" * 32)
    made = references.made("ns", ASKED)
    assert made == references.made("ns", ASKED)
    found = references.read("ns", made, SINCE)
    assert (found["step"], found["since"]) == (2, SINCE.isoformat())


def test_it_ends_with_the_question_or_after_a_week() -> None:
    references = of(b"k" * 32)
    timed = ASKED.model_copy(update={"until": SINCE + timedelta(hours=1)})
    for asked, lasts in ((timed, timedelta(hours=1)), (ASKED, timedelta(days=7))):
        made = references.made("ns", asked)
        assert references.read("ns", made, SINCE + lasts)
        with pytest.raises(Invalid, match="it expired at"):
            references.read("ns", made, SINCE + lasts + timedelta(seconds=1))


def test_another_keys_or_a_changed_one_is_refused() -> None:
    made = of(b"k" * 32).made("ns", ASKED)
    body, _, mark = made.partition(".")
    for wrong in (f"{of(b'x' * 32).made('ns', ASKED)}", f"{body[:-2]}AA.{mark}", made.replace(".", ""), "é.ü"):
        with pytest.raises(Invalid):
            of(b"k" * 32).read("ns", wrong, SINCE)


def test_people_read_what_waits_and_what_happens_without_them() -> None:
    payload = {
        "model_deployment": "walker",
        "revision": "3f9a2c81",
        "step": None,
        "otherwise": "roll_back",
        "until": "2026-02-01",
    }
    said = messages.sentence("approval.waiting", payload)
    assert said == "walker: 3f9a2c81 waits for approval at its gates. By 2026-02-01 it is rolled back."
