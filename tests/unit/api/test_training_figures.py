"""Names of training figures: the schema says exactly what the data plane takes."""

import re

import pytest
from pydantic import ValidationError

from learnloop_api.wire.training import ACTION_SHARE, FIGURES, LEARNED, LONGEST_NAME, MOST_ACTIONS, RESOURCES, Heartbeat

NAMES = (*FIGURES, *RESOURCES, *LEARNED, *(f"{ACTION_SHARE}{number}" for number in range(MOST_ACTIONS)))
SCHEMA = Heartbeat.model_json_schema()["properties"]["figures"]
BEAT = {"job": "la-1", "attempt": 0, "step": 0, "total_steps": 1, "world_size": 1, "steps_per_second": 0.0}
BEAT |= {"at": "2026-01-31T12:00:00Z", "phase": "training"}


def by_schema(name: str) -> bool:
    """Does a validator of JSON Schema let this name through?"""
    (pattern,) = SCHEMA["patternProperties"]
    return SCHEMA["additionalProperties"] is False and re.search(pattern, name) is not None


@pytest.mark.parametrize("name", NAMES)
def test_what_is_listed_is_taken_and_in_the_schema(name: str) -> None:
    assert Heartbeat.model_validate({**BEAT, "figures": {name: 1.0}}).figures == {name: 1.0}
    assert by_schema(name)
    assert len(name) <= LONGEST_NAME


@pytest.mark.parametrize(
    "name", ["", "returns", "Loss", " loss", f"{ACTION_SHARE}{MOST_ACTIONS}", f"{ACTION_SHARE}07", f"{ACTION_SHARE}²"]
)
def test_anything_else_is_refused_by_both(name: str) -> None:
    assert not by_schema(name)
    with pytest.raises(ValidationError, match="no figure of training: send any of loss, policy_loss"):
        Heartbeat.model_validate({**BEAT, "figures": {name: 1.0}})
