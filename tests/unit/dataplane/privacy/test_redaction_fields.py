"""The SDK and the data plane redact the same fields of messages, which lie in the stream for a month."""

import json

import pytest

from learnloop_api.wire.trajectory import Trajectory
from learnloop_common.redaction.redactor import Redaction, safe_measurements, safe_origin
from learnloop_dataplane.experience.trajectories import redacted
from learnloop_sdk.trajectory_encoding import redact_text, redact_trajectory

MAIL = "anna@example.org"
BODY = {
    "trajectory_id": "t1",
    "agent": "walker",
    "task": f"write to {MAIL}",
    "episode_id": "e1",
    "policy_revision": f"of {MAIL}",
    "started_at": "2026-01-31T12:00:00Z",
    "ended_at": "2026-01-31T12:00:09Z",
    "steps": [{"observation": {"page": MAIL}, "action": 1}],
    "outcome": {
        "status": "completed",
        "episode_return": 1.0,
        "values": {f"mails to {MAIL}": 2.0, "max_tokens": 4096.0, "door token": 4711.0, "plain": 0.5},
    },
    "retrieval_ids": [],
    "metadata": {"note": f"for {MAIL}"},
}


@pytest.mark.parametrize("changes", [{}, {"task": "a@b.co " * 146, "policy_revision": "a@b.co " * 9}])
def test_both_sides_redact_the_same_fields_and_what_they_publish_is_valid(changes: dict[str, str]) -> None:
    body = BODY | changes
    by_sdk = redact_trajectory(body, redact_text)
    by_plane = json.loads(redacted(Trajectory.model_validate(body)))
    assert MAIL not in json.dumps([by_sdk, by_plane])
    assert "a@b.co" not in json.dumps([by_sdk, by_plane])
    assert by_sdk["outcome"]["values"] == {"mails to <EMAIL>": 2.0, "max_tokens": 4096.0, "plain": 0.5}
    assert Trajectory.model_validate(by_sdk) == Trajectory.model_validate(by_plane)


@pytest.mark.parametrize("origin", ["", "web/example.org/page", "trajectory/t-1", "trajectory/t-*", "tool/search"])
def test_an_ordinary_origin_and_an_episodes_stay(origin: str) -> None:
    assert safe_origin(origin, Redaction()) == origin


def test_an_origin_with_an_address_is_known_by_a_pseudonym_that_stays() -> None:
    rules = Redaction(bytes(16))
    once = safe_origin(f"mail/{MAIL}/7", rules)
    assert MAIL not in once
    assert once.endswith(">/7")
    assert safe_origin(once, rules) == once
    assert len(safe_origin("a@b.co " * 36, rules)) == 256
    assert safe_origin(f"trajectory/{MAIL}", rules) != f"trajectory/{MAIL}", "no episode can have this id"


def test_measurements_keep_their_numbers() -> None:
    assert safe_measurements({"tool_errors": 3.0, "Tokens": 12.0}, Redaction()) == {"tool_errors": 3.0, "Tokens": 12.0}
