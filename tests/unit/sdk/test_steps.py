"""Steps of numbers go out unvalidated one by one: then they must be exactly what the schema takes."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from learnloop_api.wire.base import LARGEST, MOST
from learnloop_api.wire.trajectory import Trajectory
from learnloop_sdk.recording.step_rows import Row, Steps, encode
from learnloop_sdk.redact import redact_text

HEAD = {
    "trajectory_id": "t1",
    "agent": "walker",
    "task": "mail anna@example.org",
    "episode_id": "e1",
    "policy_revision": "r1",
    "started_at": "2026-01-31T12:00:00Z",
    "ended_at": "2026-01-31T12:00:09Z",
    "outcome": {"status": "completed", "episode_return": 1.0},
    "metadata": {},
}
NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**70), 2**70) | st.booleans()
ANYTHING = NUMBERS | st.none() | st.text(max_size=3)
VECTORS = st.lists(NUMBERS, max_size=3) | st.lists(ANYTHING, max_size=2) | st.text(max_size=3)


REALS = st.floats(-LARGEST, LARGEST) | st.integers(-MOST, MOST)
ROWS = st.tuples(
    st.lists(REALS, min_size=1, max_size=3),
    st.integers(-MOST, MOST) | st.lists(REALS, max_size=3),
    st.none() | st.floats(-LARGEST, 10_000),
    st.booleans(),
    st.floats(-LARGEST, LARGEST),
    st.booleans(),
    st.booleans(),
)


class Judged(Steps):
    """Leaves every step to the schema."""

    def numbers(self) -> None:
        return None


def steps_of(*rows: tuple[Any, Any, Any, float]) -> Steps:
    steps = Steps()
    for observation, action, log_prob, reward in rows:
        steps.append((observation, action, log_prob, True), reward, False, False)
    return steps


@given(st.lists(st.tuples(VECTORS, VECTORS | NUMBERS, NUMBERS | st.none(), st.floats()), min_size=1, max_size=3))
def test_whatever_is_encoded_is_a_trajectory(rows: list[tuple[Any, Any, Any, float]]) -> None:
    try:
        body = encode(HEAD, steps_of(*rows), redact_text)
    except ValidationError:
        return
    read = Trajectory.model_validate_json(body, strict=True)
    assert len(read.steps) == len(rows)
    assert "anna" not in body.decode()


@pytest.mark.parametrize("action", [1, -MOST, [0.5, 1], []])
def test_numbers_arrive_as_they_were(action: Any) -> None:
    steps = steps_of(([0.1, 2], action, -0.7, 1.5), ([LARGEST, -LARGEST], action, None, -2.0))
    steps.cut()
    assert steps.numbers() is not None
    first, second = Trajectory.model_validate_json(encode(HEAD, steps, redact_text)).steps
    assert (first.observation, first.action, first.log_prob, first.reward) == ([0.1, 2.0], action, -0.7, 1.5)
    assert (second.observation, second.log_prob, second.truncated, first.truncated) == (
        [LARGEST, -LARGEST], None, True, False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("observation", "action"),
    [([], 1), ([True], 1), (["x"], 1), ("text", 1), ([0.0], True), ([0.0], "left"), ([math.nan, 1.0], 1), ([1e39], 1)],
)
def test_what_is_not_all_numbers_is_for_the_schema_to_judge(observation: Any, action: Any) -> None:
    assert steps_of(([0.0], 1, None, 0.0), (observation, action, None, 0.0)).numbers() is None


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_numbers_go_out_byte_for_byte_as_the_schema_has_them(rows: list[Row]) -> None:
    quick, judged = Steps(), Judged()
    quick.rows, judged.rows = rows, rows
    assert quick.numbers() is not None
    body = encode(HEAD, quick, redact_text)
    assert body == encode(HEAD, judged, redact_text)
    redacted = HEAD | {"task": redact_text(str(HEAD["task"])), "steps": quick.plain()}
    assert Trajectory.model_validate_json(body, strict=True) == Trajectory.model_validate(redacted)


def test_what_a_policy_thought_an_action_worth_goes_with_its_step() -> None:
    steps = Steps()
    steps.append(([0.5], 1, -0.1, True), 1.0, False, False)
    steps.append(([0.5], 0, -0.1, True), 1.0, True, False, 2.5)
    assert [step.get("q_value") for step in steps.plain()] == [None, 2.5]
