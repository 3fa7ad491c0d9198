"""The events' JSON Schemas: up to date, valid 2020-12, and of one mind with the models."""

import json

import pytest
from jsonschema import Draft202012Validator

from learnloop_api import events


def test_the_files_are_what_the_models_say() -> None:
    assert events.stale() == [], "run `python -m learnloop_api.events write`"


@pytest.mark.parametrize("subject", events.EVENTS)
def test_a_schema_is_2020_12_described_and_takes_its_own_example(subject: str) -> None:
    document = events.schema(subject)
    Draft202012Validator.check_schema(document)
    validator = Draft202012Validator(document)
    model, example = events.EVENTS[subject]
    validator.validate(example)
    validator.validate(json.loads(model.model_validate(example).model_dump_json()))
    assert document["description"]
    first = document["required"][0]
    assert not validator.is_valid({key: value for key, value in example.items() if key != first})
