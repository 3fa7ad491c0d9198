"""The consumers take exactly what the events' JSON Schemas take, and say of everything else what to change."""

import json
import random

import jsonschema_rs
import orjson
import pytest

from learnloop_api import events, names
from learnloop_dataplane.experience.nats_workers import read
from learnloop_dataplane.nats.event_outbox import RefusedMessage
from testing.messages.fuzzed_events import AGENT, doubtful, event, fuzzed

SUBJECT = f"{names.SUBJECT_TRAJECTORY}.team.{AGENT}"
SCHEMA = jsonschema_rs.Draft202012Validator(events.schema(names.SUBJECT_TRAJECTORY), validate_formats=True)


def refusal(data: bytes) -> RefusedMessage | None:
    try:
        read(SUBJECT, data)
    except RefusedMessage as error:
        return error
    return None


def allowed(data: bytes) -> bool:
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return SCHEMA.is_valid(body) and body["agent"] == AGENT


def test_consumer_and_schema_agree_about_every_doubtful_event() -> None:
    rng = random.Random(11)
    messages = [doubtful(rng, number) for number in range(3000)]
    verdicts = [allowed(message) for message in messages]
    assert 500 < sum(verdicts) < 2500
    differing = [m for m, good in zip(messages, verdicts, strict=True) if (refusal(m) is None) != good]
    assert differing == []
    assert not any(allowed(fuzzed(rng, number)) for number in range(500))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"policy_revision": 7}, "policy_revision: Input should be a valid string; correct it"),
        ({"agent": "Walker"}, "agent: String should match pattern"),
        ({"started_at": "1700000000"}, "started_at: not RFC 3339 with an offset: send e.g. 2026-"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted; remove it"),
        ({"password": "hunter2"}, "password: Extra inputs are not permitted; remove it"),
        ({"metadata": {"user_id": 4711}}, "metadata.user_id: Input should be a valid string"),
        ({"task": ["anna"]}, "task: Input should be a valid string"),
    ],
)
def test_a_refusal_names_field_and_fix_and_no_value(change: dict, sentence: str) -> None:
    refused = refusal(json.dumps(event("t") | change).encode())
    assert refused.code == "schema"
    assert refused.reason.startswith(sentence)
    assert "publish it under a new Nats-Msg-Id; schema: /api/v1/schemas/agent.rl.trajectory.v1" in refused.reason
    assert "hunter2" not in refused.reason
    assert "anna" not in refused.reason


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ({"reward": "1"}, "steps.0.reward: Input should be a valid number"),
        ({"reward": True}, "steps.0.reward: Input should be a valid number"),
        ({"reward": 4e38}, "steps.0.reward: Input should be less than or equal to 34"),
        ({"terminated": 1}, "steps.0.terminated: Input should be a valid boolean"),
        ({"action": [1, "x"]}, "steps.0.action: Input should be a valid integer"),
        ({"action": 1.5}, "steps.0.action: Input should be a valid integer"),
    ],
)
def test_a_refusal_finds_its_way_into_steps_and_among_types(step: dict, sentence: str) -> None:
    body = event("t")
    body["steps"][0] |= step
    refused = refusal(json.dumps(body).encode())
    assert refused.reason.startswith(sentence)


@pytest.mark.parametrize("text", [b"NaN", b"Infinity", b"1e999", b"{"])
def test_what_is_no_json_anywhere_is_no_json_here(text: bytes) -> None:
    body = event("t")
    body["steps"][0]["observation"] = {"page": "@"}
    refused = refusal(json.dumps(body).encode().replace(b'"@"', text))
    assert refused.code == "json"
    assert "send one JSON object (RFC 8259)" in refused.reason
