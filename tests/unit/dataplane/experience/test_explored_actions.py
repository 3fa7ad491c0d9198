"""Explored actions have one digest, however the database writes their numbers."""

import json

import pytest

from learnloop_dataplane.experience.datasets import action_hash, digest, explored

STEP = {"observation": [0.0], "action": 1, "reward": 1.0, "exploration": True}


def test_only_what_was_drawn_is_explored() -> None:
    steps = [STEP, STEP | {"exploration": False}, STEP | {"action": 0, "q_value": 2.5}]
    drawn = explored(steps)
    assert [(place, reward, value) for place, _, reward, value in drawn] == [(0, 1.0, None), (2, 1.0, 2.5)]
    assert digest(drawn)
    assert digest(explored([STEP | {"exploration": False}])) == ""


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ([1.0, -0.0, 1e22], "[1, 0, 10000000000000000000000]"),
        ({"b": 1, "a": 2.0}, '{"a": 2.0, "b": 1}'),
        ("say \u00e9", '"say \u00e9"'),
        (7, "7"),
    ],
)
def test_an_action_has_the_hash_of_what_comes_back(sent, stored: str) -> None:
    assert action_hash(sent) == action_hash(json.loads(stored))


@pytest.mark.parametrize("change", [{"action": 0}, {"reward": 2.0}, {"q_value": 0.5}, {"exploration": False}])
def test_whatever_is_changed_changes_the_digest(change: dict) -> None:
    assert digest(explored([STEP])) != digest(explored([STEP | change]))
