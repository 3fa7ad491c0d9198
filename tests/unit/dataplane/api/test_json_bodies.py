"""Bodies that the data plane takes for valid, and its document about them."""

from datetime import UTC, datetime

import jsonschema_rs
import pytest
from fastapi.exceptions import RequestValidationError

from learnloop_api.wire.trajectory import Trajectory
from learnloop_dataplane.api.route_input import JsonBody
from learnloop_dataplane.erasure.routes import Opinion
from learnloop_dataplane.lifecycle.routes import Forget
from learnloop_dataplane.memories.routes import Retrieve, StoreMemory


@pytest.mark.parametrize("budget", ["true", '"3"', "3.5", "null"])
def test_what_is_no_integer_is_not_taken_for_one(budget: str) -> None:
    with pytest.raises(RequestValidationError) as refusal:
        JsonBody(Forget).read(b'{"agent_id": "a", "budget": %s}' % budget.encode())
    assert refusal.value.errors()[0]["loc"] == ("body", "budget")


def test_an_integer_may_be_written_with_a_decimal_point() -> None:
    assert JsonBody(Forget).read(b'{"agent_id": "a", "budget": 3.0, "dry_run": true}').budget == 3


def test_timestamps_are_text_and_lone_surrogates_are_taken_where_they_are_mended() -> None:
    body = b'{"agent_id": "a", "context": "half of \\ud83d", "as_of": "2026-01-31T12:00:00+01:00"}'
    parsed = JsonBody(Retrieve, mends=True).read(body)
    assert parsed.as_of == datetime(2026, 1, 31, 11, tzinfo=UTC)
    with pytest.raises(RequestValidationError):
        JsonBody(Retrieve).read(body)
    with pytest.raises(RequestValidationError, match="invalid timestamp, a number"):
        JsonBody(Retrieve).read(b'{"agent_id": "a", "context": "x", "as_of": 5}')
    with pytest.raises(RequestValidationError) as refusal:
        JsonBody(StoreMemory).read(
            b'{"agent_id": "a", "memory_type": "episodic", "content": {"text": "x"}, "valid_to": "soon"}'
        )
    assert refusal.value.errors()[0]["type"] == "datetime_parsing"


def test_a_trajectory_with_a_boolean_for_a_measurement_is_refused() -> None:
    with pytest.raises(RequestValidationError) as refusal:
        JsonBody(Trajectory).read(b'{"outcome": {"status": "error", "episode_return": 0, "values": {"a": false}}}')
    assert ("body", "outcome", "values", "a") in [item["loc"] for item in refusal.value.errors()]


@pytest.mark.parametrize(
    ("given", "valid"),
    [
        ({"thumbs": "up"}, True),
        ({"stars": 3, "thumbs": None}, True),
        ({}, False),
        ({"thumbs": None}, False),
        ({"thumbs": "up", "stars": 3}, False),
        ({"thumbs": "up", "more": 1}, False),
    ],
)
def test_the_document_says_of_alternatives_what_the_validator_says(given: dict, valid: bool) -> None:
    body = {"trajectory_id": "t", "user_id": "anna", **given}
    assert jsonschema_rs.is_valid(Opinion.model_json_schema(), body) is valid
    try:
        Opinion.model_validate(body)
    except ValueError:
        assert not valid
    else:
        assert valid
