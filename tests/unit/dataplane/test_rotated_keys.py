"""What was made by a key before it was rotated is still known."""

import base64
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from learnloop_common.key_lines import KeyLines
from learnloop_dataplane.audit.signing import Checkpoint, Signer
from learnloop_dataplane.config_values import with_password
from learnloop_dataplane.notifications.sending import signed
from learnloop_dataplane.privacy import keyed_digests, people, redaction

OLD, NEW = "o" * 32, "n" * 32


@pytest.fixture(autouse=True)
def plain_afterwards() -> Iterator[None]:
    yield
    redaction.use_keys(None)
    keyed_digests.use_keys(None)


def test_a_request_and_an_erased_episode_are_known_by_the_digests_of_before() -> None:
    keyed_digests.use_keys(KeyLines.parse(OLD))
    request, buried = keyed_digests.digest("request", b"body"), people.digests_of("ns", "e1")[0]
    keyed_digests.use_keys(KeyLines.parse(f"{NEW}\n{OLD}"))
    assert keyed_digests.digest("request", b"body") != request
    assert request in keyed_digests.valid("request", b"body")
    assert buried in people.digests_of("ns", "e1")
    keyed_digests.use_keys(KeyLines.parse(NEW))
    assert request not in keyed_digests.valid("request", b"body"), "a key that is gone knows nothing"


def test_pods_that_read_the_new_key_at_different_times_say_the_same_until_it_is_used() -> None:
    lines = KeyLines.parse(f"{NEW} from={int(time.time()) + 3600}\n{OLD}")
    redaction.use_keys(KeyLines.parse(OLD))
    keyed_digests.use_keys(KeyLines.parse(OLD))
    before = redaction.redact_text("write to a@b.example"), keyed_digests.digest("request", b"body")
    redaction.use_keys(lines)
    keyed_digests.use_keys(lines)
    assert (redaction.redact_text("write to a@b.example"), keyed_digests.digest("request", b"body")) == before


def test_checkpoints_by_either_key_hold_and_name_their_own() -> None:
    old, new = (base64.b64encode(key.encode()).decode() for key in (OLD, NEW))
    at, later = datetime.now(UTC), time.time() + 3600
    first = Checkpoint.signed(Signer(KeyLines.parse(f"{new} from={int(later)}\n{old}")), "ns", 1, at, b"h")
    second = Checkpoint.signed(Signer(KeyLines.parse(f"{new}\n{old}")), "ns", 2, at, b"h")
    assert first.public_key != second.public_key
    assert first.holds()
    assert second.holds()
    both = Signer(KeyLines.parse(f"{new}\n{old}"))
    assert {first.public_key, second.public_key} == set(both.public_keys)


def test_a_receiver_finds_its_signature_whichever_key_it_knows() -> None:
    alone = [signed(key, "m1", 1, b"body")["webhook-signature"] for key in (NEW, OLD)]
    assert signed(f"{NEW}\n{OLD}", "m1", 1, b"body")["webhook-signature"].split(" ") == alone


def test_an_address_has_the_newest_of_several_passwords() -> None:
    dsn = "postgresql://data@one:5432,two:5432/db?target_session_attrs=read-write"
    assert with_password(dsn, KeyLines.parse("p/1")) == dsn.replace("data@", "data:p%2F1@")
    both = with_password(dsn, KeyLines.parse("new\nold"))
    assert both == dsn.replace("data@", "data:new@")
